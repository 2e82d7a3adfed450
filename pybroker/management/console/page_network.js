// Bridges to other brokers, what they consume for these, and messages that are stranded here.

import { get, path, post } from "./api.js";
import { confirmCount } from "./dialog.js";
import { h } from "./dom.js";
import { ago, duration, mono, name, now, number, prose } from "./format.js";
import { button, empty, section, tag, to } from "./parts.js";
import { table } from "./table.js";

const ROWS = 250;
const COLOURS = { up: "ok", connecting: "warn", stopped: "" };

export const networkPage = {
  title: () => "Networks of brokers",
  needsMaster: true,

  async load(context, signal) {
    const ask = async (part) => (await get(`network/${part}`, { page_size: ROWS }, signal)).items;
    const [connectors, bridges, demand, stranded] = await Promise.all(
      ["connectors", "bridges", "demand", "stranded"].map(ask),
    );
    return { connectors, bridges, demand, stranded };
  },

  view(context) {
    const { connectors, bridges, demand, stranded } = context.data;
    return [
      section(
        "Bridges",
        { key: "bridges" },
        connectors.length ? bridgeTable(context, connectors, bridges) : empty("There is no network connector."),
      ),
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
    { id: "state", label: "State", cell: (row) => [tag(row.state, COLOURS[row.state] ?? "bad"), " ", waits(row)] },
    { id: "remote", label: "Remote broker", cell: (row) => (row.remote_name ? name(row.remote_name) : "–") },
    { id: "target", label: "Addresses", class: "long", cell: (row) => mono(row.target) },
    count("demand", "Demand"),
    count("forwarded", "Forwarded"),
    count("failures", "Failures"),
    {
      id: "failure",
      label: "Last failure",
      class: "long",
      cell: (row) => (row.last_failure ? [ago(row.last_failure_ms), ": ", prose(row.last_failure)] : "–"),
    },
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
  return table("Bridges", columns, bridges, { key: (row) => `${row.connector} ${row.target}` });
}

function waits(row) {
  return row.next_attempt_ms > now() && `connects in ${duration(row.next_attempt_ms - now())}`;
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
