// A client of stompjs over WebSocket that sends numbered messages to a queue, or receives them, whichever member serves.
//
//     node stomp_counting.mjs '{"role": "producer", "name": "p", "urls": [...], "binary": false, "split": false}'
//
// It prints a line for each event: `up`, `confirmed 7`, `received p 7`, `done`. A producer ends when its standard input
// does, and everything has been confirmed; a consumer ends with its standard input. What has no receipt when a connection
// ends is sent again, as stompjs leaves that to its user.

import { Client, ReconnectionTimeMode } from "@stomp/stompjs";
import { WebSocket } from "ws";

Object.assign(globalThis, { WebSocket });

const { role, name, urls, binary, split, size } = JSON.parse(process.argv[2]);
const QUEUE = "/queue/JS.KILLS";
const WINDOW = 20;
const padding = "x".repeat(size ?? 0);

function say(line) {
  process.stdout.write(`${line}\n`);
}

let attempt = 0;
let number = 0;
let isStopping = false;
const open = new Set();

const client = new Client({
  reconnectDelay: 20,
  reconnectTimeMode: ReconnectionTimeMode.LINEAR,
  heartbeatIncoming: 1000,
  heartbeatOutgoing: 1000,
  forceBinaryWSFrames: binary,
  splitLargeFrames: split,
  beforeConnect: () => {
    client.brokerURL = urls[attempt++ % urls.length];
  },
  onWebSocketError: () => {},
  onStompError: (frame) => say(`error ${frame.headers.message}`),
  onConnect: () => {
    say(`up ${client.connectedVersion}`);
    if (role === "producer") {
      for (const each of open) {
        send(each);
      }
      fill();
    } else {
      client.subscribe(
        QUEUE,
        (message) => {
          const [producer, sent] = message.body.split(" ");
          say(`received ${producer} ${sent}`);
          message.ack();
        },
        { ack: "client-individual", "activemq.prefetchSize": "20" },
      );
      say("subscribed");
    }
  },
});

function fill() {
  while (open.size < WINDOW && !isStopping) {
    number += 1;
    open.add(number);
    send(number);
  }
}

function send(mine) {
  client.watchForReceipt(`${mine}`, () => {
    open.delete(mine);
    say(`confirmed ${mine}`);
    if (isStopping && open.size === 0) {
      finish();
    } else {
      fill();
    }
  });
  const headers = { receipt: `${mine}`, persistent: "true" };
  client.publish({ destination: QUEUE, headers, body: `${name} ${mine} ${padding}` });
}

async function finish() {
  say("done");
  await client.deactivate();
  process.exit(0);
}

process.stdin.on("end", () => {
  isStopping = true;
  if (role === "consumer" || open.size === 0) {
    finish();
  }
});
process.stdin.resume();
client.activate();
