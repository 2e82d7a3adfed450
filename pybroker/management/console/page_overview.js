// The state of the member and of the pair at a glance: warnings, high availability, rates, usage, the fullest queues.

import { get } from "./api.js";
import { chart, rates } from "./chart.js";
import { h } from "./dom.js";
import { ago, bytes, dateTime, duration, mono, name, number, percent, rate } from "./format.js";
import { masterText, picture, reasonItem } from "./frame.js";
import { phases } from "./pair.js";
import { empty, facts, figure, meter, notice, section, sentence, tag, to } from "./parts.js";
import { table } from "./table.js";

const LAG_SECONDS = 0.1;
const FULLEST = { sort: "size", order: "desc", page_size: 8, filter: "nonempty" };

export const overviewPage = {
  title: () => "Overview",
  needsState: true,

  async load(context, signal) {
    if (!context.isMaster) return { history: null, fullest: null };
    const [history, fullest] = await Promise.all([recent(context, signal), get("queues", FULLEST, signal)]);
    return { history, fullest };
  },

  view(context) {
    const { overview, state } = context.shell;
    const { history, fullest } = context.data;
    const { totals } = overview;
    return [
      warnings(overview, state),
      !context.isMaster && notice("", h("b", {}, "This member is not the master."), " ", masterText(context.shell)),
      state && availability(state),
      totals &&
        section("Messages", { class: "figures-section", key: "messages" }, messages(totals, history?.points ?? [])),
      totals && section("Usage", { key: "usage" }, usage(overview)),
      fullest &&
        section(
          "Fullest queues",
          { key: "fullest", actions: h("a", { href: "#/queues" }, "All queues") },
          fullestTable(fullest.items),
        ),
      section("Member", { key: "member" }, memberFacts(overview)),
    ];
  },
};

/** The last hour, which is longer than all else, and asked for when it has another point. */
async function recent({ state }, signal) {
  if (!state.history || performance.now() - state.historyAtMs >= 1000 * state.history.interval_seconds) {
    state.history = await get("history", {}, signal);
    state.historyAtMs = performance.now();
  }
  return state.history;
}

function warnings(overview, state) {
  const { totals } = overview;
  const found = [];
  if (totals?.is_full) found.push(["bad", "The store is full: persistent messages are refused until there is space."]);
  if (totals?.is_spool_full)
    found.push(["bad", "The temporary store is full: it takes no more messages that are not persistent."]);
  if (totals?.memory_bytes_max && totals.memory_bytes >= totals.memory_bytes_max)
    found.push(["warn", "The memory for messages is full: producers are slowed down."]);
  if (totals && totals.loop_lag_seconds >= LAG_SECONDS) {
    found.push([
      "warn",
      `All clients waited ${duration(totals.loop_lag_seconds * 1000)} for one turn of the event loop in the last minute: ${totals.loop_lag_cause}`,
    ]);
  }
  if (totals?.refused) found.push(["warn", `${number(totals.refused)} connections were refused or closed by limits`]);
  if (state && !state.lock.is_held) found.push(["bad", "No member holds the lock: clients are not served."]);
  const reasons = state?.reasons ?? [];
  if (!found.length && !reasons.length) return null;
  return h(
    "ul",
    { class: "warnings", key: "warnings", "aria-label": "Warnings" },
    found.map(([colour, text]) => h("li", { key: text, class: `notice ${colour}` }, sentence(text))),
    reasons.map(reasonItem),
  );
}

function availability(state) {
  const { lock } = state;
  const last = state.promotions[0];
  const standby = state.members.filter((each) => each.is_alive && each.role === "STANDBY");
  const actions = h("a", { href: "#/ha" }, "History");
  return section(
    "High availability",
    { key: "ha", actions, class: "ha-strip" },
    h(
      "div",
      { class: "beside" },
      picture(state),
      h(
        "div",
        {},
        facts(
          ["State", tag(state.state, { healthy: "ok", degraded: "bad" }[state.state] ?? "warn")],
          [
            "Lock",
            lock.is_held
              ? [name(lock.holder), lock.held_since_ms ? `, held since ${dateTime(lock.held_since_ms)}` : ""]
              : "free",
          ],
          ["Confirmed", lock.is_held && lock.confirmed_ms ? ago(lock.confirmed_ms) : null],
          [
            "Standby",
            standby.length
              ? standby.map((each) =>
                  h(
                    "div",
                    { key: each.name },
                    name(each.name),
                    each.lag_bytes === null ? "" : `, ${bytes(each.lag_bytes)} behind`,
                  ),
                )
              : "none: clients would find no member to fail over to",
          ],
          ["Last clean check", state.last_clean_check_ms ? ago(state.last_clean_check_ms) : "never"],
          [
            last && last.phases?.following === undefined ? "Became master" : "Last failover",
            last ? [`${ago(last.at_ms)}, to `, name(last.member), `, in ${duration(last.total_ms)}`] : "none",
          ],
          [
            "Reconnections",
            state.reconnections === null ? null : `${number(state.reconnections)} of clients, since then`,
          ],
        ),
        last && phases(last),
      ),
    ),
  );
}

function messages(totals, points) {
  const atMs = points.map((point) => point.at_ms);
  const enqueued = rates(points, "enqueued");
  const dequeued = rates(points, "dequeued");
  const column = (id) => points.map((point) => point[id] ?? null);
  const drawn = (props) => points.length > 1 && chart({ atMs, ...props });
  return h(
    "div",
    { class: "figures charts" },
    figure(
      "Enqueued",
      rate(enqueued.at(-1) ?? null),
      drawn({ title: "Enqueue rate", series: [{ label: "", values: enqueued }], format: rate }),
    ),
    figure(
      "Dequeued",
      rate(dequeued.at(-1) ?? null),
      drawn({ title: "Dequeue rate", series: [{ label: "", values: dequeued }], format: rate }),
    ),
    figure(
      "Pending",
      [
        number(totals.waiting + totals.in_flight),
        h("span", { class: "figure-more" }, ` ${number(totals.in_flight)} in flight`),
      ],
      drawn({ title: "Pending messages", series: [{ label: "", values: column("size") }], format: number }),
    ),
    figure(
      "Connections",
      number(totals.connections),
      drawn({ title: "Connections", series: [{ label: "", values: column("connections") }], format: number }),
    ),
    figure(
      "Event loop lag",
      duration(totals.loop_lag_seconds * 1000),
      drawn({
        title: "Event loop lag",
        series: [
          { label: "", values: column("loop_lag_seconds").map((value) => (value === null ? null : value * 1000)) },
        ],
        format: duration,
      }),
    ),
  );
}

function usage({ totals, usage: system }) {
  const share = (used, limit) => (limit ? used / limit : 0);
  const text = (used, limit) =>
    limit ? `${bytes(used)} of ${bytes(limit)}, ${percent((100 * used) / limit)}` : `${bytes(used)}, no limit`;
  return h(
    "div",
    { class: "meters" },
    meter(
      "Memory",
      share(totals.memory_bytes, totals.memory_bytes_max),
      text(totals.memory_bytes, totals.memory_bytes_max),
    ),
    meter("Store", share(system.storeUsage, system.storeLimit), text(system.storeUsage, system.storeLimit)),
    meter("Temporary store", share(system.tempUsage, system.tempLimit), text(system.tempUsage, system.tempLimit)),
  );
}

function fullestTable(rows) {
  if (!rows.length) return empty("No queue has messages.");
  const columns = [
    {
      id: "name",
      label: "Name",
      isMain: true,
      cell: (row) => [
        h("a", { href: to("queues", row.name) }, name(row.name)),
        row.is_dead_letter_queue && [" ", tag("DLQ", "warn")],
        row.is_paused && [" ", tag("paused", "warn")],
      ],
    },
    { id: "size", label: "Pending", isNumber: true, cell: (row) => number(row.size) },
    { id: "in_flight", label: "In flight", isNumber: true, cell: (row) => number(row.in_flight) },
    {
      id: "consumers",
      label: "Consumers",
      isNumber: true,
      cell: (row) => (row.consumers ? number(row.consumers) : tag("none", row.is_dead_letter_queue ? "" : "warn")),
    },
  ];
  return table("Fullest queues", columns, rows, { key: (row) => row.name });
}

function memberFacts(overview) {
  return facts(
    ["Broker name", name(overview.broker_name)],
    ["Role since", overview.since_ms ? `${dateTime(overview.since_ms)}, ${ago(overview.since_ms)}` : null],
    ["Host", [name(overview.host), `, process ${overview.pid}`]],
    ["Version", `pybroker ${overview.version}`],
    ["Store", overview.store ? mono(overview.store) : null],
    ["Listeners", overview.listeners?.map((each) => h("div", { key: each }, mono(each)))],
    ["Broker id", overview.broker_id ? mono(overview.broker_id) : null],
    ["Epoch", overview.epoch === undefined ? null : number(overview.epoch)],
  );
}
