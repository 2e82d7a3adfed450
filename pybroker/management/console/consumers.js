// The table of consumers, with the state of their windows.

import { h } from "./dom.js";
import { mono, name, number, visible } from "./format.js";
import { tag, to } from "./parts.js";
import { table } from "./table.js";

export function consumerTable(consumers, { hasDestination = false } = {}) {
  const columns = [
    hasDestination && {
      id: "destination",
      label: "Destination",
      isMain: true,
      cell: (row) =>
        row.destination
          .split(",")
          .map((each) =>
            h(
              "div",
              { key: each },
              h("a", { href: to(`${row.kind}s`, each) }, name(each)),
              row.kind === "topic" ? " topic" : "",
            ),
          ),
    },
    {
      id: "client",
      label: "Client",
      isMain: !hasDestination,
      cell: (row) =>
        hasDestination
          ? mono(row.consumer_id || "–")
          : h(
              "a",
              { href: to("connections", row.connection_id), title: visible(row.consumer_id) },
              name(row.client_id || row.connection_id),
            ),
    },
    { id: "user", label: "User", cell: (row) => name(row.user) },
    { id: "window", label: "In flight of prefetch", cell: windowState },
    { id: "enqueued", label: "Delivered", isNumber: true, cell: (row) => number(row.enqueued) },
    { id: "dequeued", label: "Acknowledged", isNumber: true, cell: (row) => number(row.dequeued) },
    { id: "options", label: "Options", cell: options },
  ].filter(Boolean);
  return table("Consumers", columns, consumers, {
    key: (row) => `${row.connection_id} ${row.consumer_id} ${row.destination}`,
  });
}

/** How full the window of a consumer is: once it is full, nothing more is delivered before an acknowledgement. */
function windowState(row) {
  const isFull = row.prefetch > 0 && row.in_flight >= row.prefetch;
  const share = row.prefetch > 0 ? Math.min(1, row.in_flight / row.prefetch) : 0;
  return h(
    "span",
    { class: "window" },
    h(
      "span",
      { class: "window-track", "aria-hidden": "true" },
      h("span", { class: isFull ? "window-bar warn" : "window-bar", style: { width: `${share * 100}%` } }),
    ),
    h("span", {}, `${number(row.in_flight)} of ${row.prefetch ? number(row.prefetch) : "0, it polls"}`),
    isFull && tag("full", "warn", "It gets nothing more before it acknowledges"),
  );
}

function options(row) {
  return [
    row.selector && h("span", { key: "selector" }, "selector ", mono(row.selector), " "),
    row.subscription && h("span", { key: "durable" }, "durable ", name(row.subscription), " "),
    row.priority !== 0 && `priority ${row.priority} `,
    row.is_exclusive && [tag("exclusive"), " "],
    row.is_retroactive && [tag("retroactive"), " "],
    row.is_no_local && [tag("no local"), " "],
    row.is_browser && [tag("browser"), " "],
    row.pending_max > 0 && `at most ${number(row.pending_max)} wait`,
  ];
}
