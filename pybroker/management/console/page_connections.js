// Connections of clients, and one of them with its consumers.

import { ApiError, get, path, remove } from "./api.js";
import { consumerTable } from "./consumers.js";
import { confirmCount } from "./dialog.js";
import { h } from "./dom.js";
import { counted, mono, name, number, visible } from "./format.js";
import { button, empty, facts, section, tag, to } from "./parts.js";
import { pageQuery, pagedTable } from "./table.js";

const PAGE_MAX = 1000;

export const connectionsPage = {
  title: () => "Connections",
  needsMaster: true,

  load: (context, signal) =>
    get("connections", pageQuery(context.route.query, { sort: "client_id", order: "asc" }), signal),

  view(context) {
    const text = (id, label) => ({ id, label, sort: id, cell: (row) => name(row[id] || "–") });
    const count = (id, label) => ({ id, label, sort: id, isNumber: true, cell: (row) => number(row[id]) });
    const columns = [
      {
        id: "client_id",
        label: "Client ID",
        sort: "client_id",
        isMain: true,
        cell: (row) => [
          h("a", { href: to("connections", row.connection_id) }, name(row.client_id || row.connection_id)),
          row.is_blocked && [" ", blocked()],
        ],
      },
      text("user", "User"),
      { id: "peer", label: "Remote address", sort: "peer", cell: (row) => mono(row.peer) },
      text("listener", "Listener"),
      count("consumers", "Consumers"),
      count("producers", "Producers"),
      count("transactions", "Transactions"),
      context.may("admin") && {
        id: "acts",
        label: h("span", { class: "unseen" }, "Actions"),
        class: "acts",
        cell: (row) =>
          button("Cut off", () => cutOff(context, row), {
            class: "danger small",
            "aria-label": `Cut off ${visible(row.client_id)}`,
          }),
      },
    ].filter(Boolean);
    return pagedTable(context, {
      label: "Connections",
      noun: "connections",
      columns,
      answer: context.data,
      key: (row) => row.connection_id,
      defaults: { sort: "client_id", order: "asc" },
      filterHint: "Filter by client ID",
      none: "No clients are connected.",
    });
  },
};

export const connectionPage = {
  title: (context) => `Connection ${visible(context.data?.row.client_id ?? context.params.id)}`,
  heading: (context) => [
    h("a", { href: "#/connections", class: "up" }, "Connections"),
    " / ",
    name(context.data?.row.client_id || context.params.id),
  ],
  needsMaster: true,

  actions: (context) =>
    context.may("admin") &&
    context.data?.row &&
    button("Cut off", () => cutOff(context, context.data.row), { class: "danger" }),

  async load(context, signal) {
    const query = { connection_id: context.params.id, page_size: PAGE_MAX };
    const [connections, consumers] = await Promise.all([
      get("connections", query, signal),
      get("consumers", query, signal),
    ]);
    if (!connections.items.length) throw new ApiError(404, "this connection has ended");
    return { row: connections.items[0], consumers: consumers.items };
  },

  view(context) {
    const { row, consumers } = context.data;
    return [
      section(
        "Connection",
        { key: "facts" },
        facts(
          ["State", row.is_blocked ? blocked() : "active"],
          ["User", name(row.user)],
          ["Remote address", mono(row.peer)],
          ["Listener", name(row.listener || "–")],
          ["Producers", number(row.producers)],
          ["Open transactions", number(row.transactions)],
          ["Connection id", mono(row.connection_id)],
        ),
      ),
      section(
        "Consumers",
        { key: "consumers" },
        consumers.length
          ? consumerTable(consumers, { hasDestination: true })
          : empty("This connection has no consumers."),
      ),
    ];
  },
};

function blocked() {
  return tag("blocked", "warn", "It is not read, because memory or the store is full");
}

async function cutOff(context, row) {
  const isDone = await confirmCount({
    title: "Cut off a connection",
    label: "Cut off",
    consequence: [
      h(
        "p",
        {},
        name(row.client_id || row.connection_id),
        " of the user ",
        name(row.user),
        " at ",
        mono(row.peer),
        " is closed, with ",
        h(
          "b",
          {},
          `${counted(row.consumers, "consumer")}, ${counted(row.producers, "producer")} and ${counted(row.transactions, "open transaction")}`,
        ),
        ".",
      ),
      h(
        "p",
        {},
        "Messages that it has not acknowledged are delivered to other consumers. A failover client connects again by itself.",
      ),
    ],
    act: (signal) => remove(`connections/${path(row.connection_id)}`, {}, signal),
  });
  if (isDone) context.refresh();
}
