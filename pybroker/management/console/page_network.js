// Bridges to other brokers, what they consume for these, and messages that are stranded here.

import { get, path, post } from "./api.js";
import { confirmCount } from "./dialog.js";
import { h } from "./dom.js";
import { ago, duration, mono, name, now, number, prose } from "./format.js";
import { button, empty, section, tag, to } from "./parts.js";
import { table } from "./table.js";

const ROWS = 250;
const COLOURS = { up: "ok", connecting: "warn", stopped: "" };
const WORDS = { "waiting to connect again": "waiting" };

export const networkPage = {
  title: () => "Networks of brokers",
  needsMaster: true,

  async load(context, signal) {
    const ask = async (part) => (await get(`network/${part}`, { page_size: ROWS }, signal)).items;
    const [connectors, bridges, incoming, demand, stranded] = await Promise.all(
      ["connectors", "bridges", "incoming", "demand", "stranded"].map(ask),
    );
    return { connectors, bridges, incoming, demand, stranded };
  },

  view(context) {
    const { connectors, bridges, incoming, demand, stranded } = context.data;
    return [
      section(
        "Bridges to other brokers",
        { key: "bridges" },
        connectors.length ? bridgeTable(context, connectors, bridges) : empty("There is no network connector."),
      ),
      incoming.length > 0 && section("Bridges from other brokers", { key: "incoming" }, incomingTable(incoming)),
      demand.length > 0 && section("Demand subscriptions", { key: "demand" }, demandTable(demand)),
      stranded.length > 0 && section("Stranded messages", { key: "stranded" }, strandedTable(stranded)),
    ].filter(Boolean);
  },
};

function count(id, label) {
  return { id, label, isNumber: true, cell: (row) => number(row[id]) };
}

function bridgeTable(context, connectors, bridges) {
  const started = new Map(connectors.map((each) => [each.name, each.is_started]));
  const columns = [
    { id: "connector", label: "Connector", isMain: true, cell: (row) => name(row.connector) },
    {
      id: "state",
      label: "State",
      class: "time",
      cell: (row) => [
        tag(WORDS[row.state] ?? row.state, COLOURS[row.state] ?? "bad"),
        h("div", { class: "hint" }, times(row)),
      ],
    },
    { id: "remote", label: "Remote broker", class: "long", cell: (row) => [name(row.remote_name), addresses(row)] },
    count("demand", "Demand"),
    count("forwarded", "Forwarded"),
    bridges.some((row) => row.is_duplex) && count("received", "Received"),
    { id: "failures", label: "Failures", class: "long", cell: failures },
    context.may("operator") && {
      id: "acts",
      label: h("span", { class: "unseen" }, "Actions"),
      class: "acts",
      cell: (row) =>
        button(started.get(row.connector) ? "Stop" : "Start", () => change(context, row, started.get(row.connector)), {
          class: "small",
        }),
    },
  ].filter(Boolean);
  return table("Bridges to other brokers", columns, bridges, { key: (row) => `${row.connector} ${row.target}` });
}

/** For how long a bridge has its state, or when it connects again. */
function times(row) {
  if (row.next_attempt_ms > now()) return `connects in ${duration(row.next_attempt_ms - now())}`;
  return `for ${duration(now() - row.since_ms)}`;
}

/** The addresses of a bridge, one a line: of a pair each member has its own. */
function addresses(row) {
  return row.target.split(",").map((each) => h("div", { key: each, class: "hint" }, mono(each)));
}

function failures(row) {
  if (!row.last_failure) return number(row.failures);
  return [number(row.failures), ", last ", ago(row.last_failure_ms), ": ", prose(row.last_failure)];
}

function incomingTable(incoming) {
  const isBothWays = incoming.some((row) => row.is_duplex);
  const columns = [
    { id: "connector", label: "Connector", isMain: true, cell: (row) => name(row.connector) },
    {
      id: "state",
      label: "State",
      cell: (row) => (row.problem ? tag("refused", "bad") : tag(row.is_duplex ? "both ways" : "one way", "ok")),
    },
    { id: "remote", label: "Remote broker", cell: (row) => (row.remote_name ? name(row.remote_name) : "–") },
    {
      id: "address",
      label: "Address",
      cell: (row) => h("a", { href: to("connections", row.connection_id) }, mono(row.address)),
    },
    { id: "since", label: "Since", class: "time", cell: (row) => ago(row.since_ms) },
    count("received", "Received"),
    isBothWays && count("demand", "Demand"),
    isBothWays && count("forwarded", "Forwarded"),
    incoming.some((row) => row.problem) && {
      id: "problem",
      label: "Problem",
      class: "long",
      cell: (row) => (row.problem ? prose(row.problem) : "–"),
    },
  ].filter(Boolean);
  return table("Bridges from other brokers", columns, incoming, { key: (row) => row.connection_id });
}

function demandTable(demand) {
  const columns = [
    { id: "destination", label: "Destination", isMain: true, cell: (row) => name(row.destination) },
    { id: "kind", label: "Kind", cell: (row) => row.kind },
    { id: "remote", label: "For", cell: (row) => name(row.remote_name) },
    { id: "selector", label: "Selector", cell: (row) => (row.selector ? mono(row.selector) : "–") },
    { id: "subscription", label: "Subscription", cell: (row) => (row.subscription ? mono(row.subscription) : "–") },
    count("prefetch", "Prefetch"),
    count("outstanding", "Outstanding"),
    count("priority", "Priority"),
    {
      id: "state",
      label: "State",
      cell: (row) => (row.is_ending ? tag("ends") : row.is_paused ? tag("paused", "warn") : tag("active", "ok")),
    },
  ];
  return table("Demand subscriptions", columns, demand, {
    key: (row) => `${row.connector} ${row.remote_name} ${row.kind} ${row.destination} ${row.selector} ${row.is_ending}`,
  });
}

function strandedTable(stranded) {
  const columns = [
    {
      id: "queue",
      label: "Queue",
      isMain: true,
      cell: (row) => h("a", { href: to("queues", row.queue, "messages") }, name(row.queue)),
    },
    count("size", "Size"),
    {
      id: "stranded",
      label: "Came over a bridge",
      isNumber: true,
      cell: (row) =>
        number(row.stranded) + (row.examined < row.size ? ` of the first ${number(row.examined)}` : ""),
    },
  ];
  return table("Stranded messages", columns, stranded, { key: (row) => row.queue });
}

async function change(context, row, isStarted) {
  const verb = isStarted ? "Stop" : "Start";
  const effect = isStarted ? " are ended, until they are started." : " are opened again.";
  const isDone = await confirmCount({
    title: `${verb} network connector`,
    label: verb,
    isDanger: isStarted,
    consequence: [h("p", {}, "The bridges of ", name(row.connector), effect)],
    act: (signal) => post(`network/connectors/${path(row.connector)}/${verb.toLowerCase()}`, {}, signal),
  });
  if (isDone) context.refresh();
}
