// A client of mqtt.js that publishes numbered messages, or receives them, with a session, whichever member serves.
//
//     node mqtt_counting.mjs '{"role": "publisher", "name": "p", "urls": [...], "qos": 1, "version": 4}'
//
// A publisher may have a "count" of messages, and a number "perSecond". It prints a line for each event: `up`, `confirmed 7`, `received p 7`, `subscribed`, `done`. A publisher ends when its
// standard input does, and everything has been confirmed; a subscriber ends with its standard input.

import mqtt from "mqtt";

const { role, name, urls, qos, version, will, count = Infinity, perSecond = Infinity } = JSON.parse(process.argv[2]);
const WINDOW = 20;
const NEVER = 0xffffffff;

let attempt = 0;
const client = mqtt.connect({
  // Of several addresses mqtt.js takes the next one for each attempt.
  servers: urls.map((url) => {
    const { hostname, port, protocol } = new URL(url);
    return { host: hostname, port: Number(port), protocol: protocol.slice(0, -1) };
  }),
  clientId: `${role}-${name}`,
  protocolId: version === 3 ? "MQIsdp" : "MQTT",
  protocolVersion: version,
  clean: false,
  properties: version === 5 ? { sessionExpiryInterval: NEVER } : undefined,
  will: will ? { topic: will, payload: name, qos: 1 } : undefined,
  keepalive: 5,
  reconnectPeriod: 20,
  connectTimeout: 5000,
  resubscribe: false, // the session has the subscription
});

function say(line) {
  process.stdout.write(`${line}\n`);
}

client.on("error", (error) => say(`error ${error.message}`));
client.on("connect", (answer) => {
  attempt += 1;
  say(`up ${attempt} ${answer.sessionPresent}`);
});

if (role === "publisher") {
  let number = 0;
  let open = 0;
  let isStopping = false;
  const begun = Date.now();
  const finish = () => {
    if (isStopping && open === 0) {
      say("done");
      client.end(false, () => process.exit(0));
    }
  };
  const fill = () => {
    const due = perSecond === Infinity ? count : ((Date.now() - begun) / 1000) * perSecond;
    while (open < WINDOW && number < Math.min(count, due) && !isStopping) {
      const mine = ++number;
      open += 1;
      client.publish(`kills/${name}`, `${name} ${mine} `, { qos }, (error) => {
        open -= 1;
        if (error) {
          say(`error ${error.message}`);
        } else {
          say(`confirmed ${mine}`);
        }
        finish();
        if (perSecond === Infinity) {
          setImmediate(fill);
        }
      });
    }
  };
  client.once("connect", fill);
  setInterval(fill, 20);
  process.stdin.on("end", () => {
    isStopping = true;
    finish();
  });
} else {
  client.on("message", (topic, payload) => {
    const [publisher, number] = payload.toString().split(" ");
    say(`received ${publisher} ${number}`);
  });
  client.once("connect", async () => {
    const granted = await client.subscribeAsync("kills/#", { qos });
    say(`subscribed ${granted[0].qos}`);
  });
  process.stdin.on("end", () => client.end(true, () => process.exit(0)));
}
process.stdin.resume();
