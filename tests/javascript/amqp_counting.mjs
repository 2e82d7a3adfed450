// A client of rhea that sends numbered messages to an address, or receives them, whichever member serves.
//
//     node amqp_counting.mjs '{"role": "sender", "name": "s", "urls": ["amqp://127.0.0.1:5672"], "address": "q"}'
//
// URLs with `ws://` are those of WebSocket. A sender may have a "count" of messages, a receiver of a topic may be
// "durable". It prints a line for each event: `up`, `confirmed 7`, `received s 7 0` with the delivery count, `attached`,
// `done`. A sender ends when its standard input does, and everything has been accepted; a receiver ends with its standard
// input. What is not settled when a connection ends is sent again, as rhea leaves that to its user.

import rhea from "rhea";
import { WebSocket } from "ws";

const { role, name, urls, address, durable, count = Infinity } = JSON.parse(process.argv[2]);
const WINDOW = 20;

const container = rhea.create_container({ id: `${role}-${name}` });
const websocket = container.websocket_connect(WebSocket);

let attempt = 0;
let number = 0;
let isStopping = false;
const open = new Map(); // numbers by their deliveries
let again = []; // numbers that have no answer from the last connection

function say(line) {
  process.stdout.write(`${line}\n`);
}

function details() {
  const url = urls[attempt++ % urls.length];
  if (url.startsWith("ws")) {
    return websocket(url, ["amqp"])();
  }
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

function finish() {
  if (isStopping && open.size === 0 && again.length === 0) {
    say("done");
    connection.close();
    process.exit(0);
  }
}

function fill(sender) {
  while (sender.sendable() && open.size < WINDOW && (again.length > 0 || (number < count && !isStopping))) {
    const mine = again.shift() ?? ++number;
    open.set(sender.send({ durable: true, body: `${name} ${mine} ` }), mine);
  }
}

container.on("connection_open", () => {
  attempt -= 1; // this address first, once the connection is lost
  say("up");
});
container.on("connection_error", ({ connection: { error } }) => say(`error ${error}`));
container.on("sender_error", ({ sender: { error } }) => say(`error ${error}`));
container.on("receiver_error", ({ receiver: { error } }) => say(`error ${error}`));
container.on("disconnected", () => {
  again = [...open.values(), ...again];
  open.clear();
});
container.on("sendable", ({ sender }) => fill(sender));
container.on("accepted", ({ delivery, sender }) => {
  say(`confirmed ${open.get(delivery)}`);
  open.delete(delivery);
  fill(sender);
  finish();
});
container.on("rejected", ({ delivery }) => say(`error rejected ${open.get(delivery)}`));
container.on("receiver_open", () => say("attached"));
container.on("message", ({ message }) => {
  const [sender, sent] = message.body.split(" ");
  say(`received ${sender} ${sent} ${message.delivery_count ?? 0}`);
});

const connection = container.connect({
  connection_details: details,
  initial_reconnect_delay: 20,
  max_reconnect_delay: 50,
});
if (role === "sender") {
  connection.open_sender(address);
} else {
  const terms = durable ? { durable: 2, expiry_policy: "never" } : {};
  connection.open_receiver({ name: "receiver", source: { address, ...terms }, credit_window: WINDOW });
}

process.stdin.on("end", () => {
  isStopping = true;
  if (role === "receiver") {
    process.exit(0);
  }
  finish();
});
process.stdin.resume();
