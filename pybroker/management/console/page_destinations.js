// Queues and topics: their lists, and one of them with its counts and consumers.

import { get, path } from "./api.js";
import { Rates } from "./chart.js";
import { consumerTable } from "./consumers.js";
import { h } from "./dom.js";
import { bytes, counted, duration, name, number, percent, rate, visible } from "./format.js";
import { createDestination, deleteDestination, purge, sendMessage, setPaused } from "./operations.js";
import { button, empty, facts, figure, section, tag, to } from "./parts.js";
import { pageQuery, pagedTable } from "./table.js";

const FILTERS = [
  ["", "All"],
  ["nonempty", "With messages"],
  ["empty", "Empty"],
  ["noConsumer", "Without consumers"],
];
const CONSUMERS_MAX = 1000;

function listPage(kind, title) {
  const isQueue = kind === "queue";
  return {
    title: () => title,
    needsMaster: true,

    actions(context) {
      return context.may("admin") && button(`Create ${kind}`, () => createDestination(context, kind));
    },

    async load(context, signal) {
      const asked = pageQuery(context.route.query, { sort: "name", order: "asc" }, { hasFilter: true });
      const answer = await get(`${kind}s`, asked, signal);
      context.state.rates ??= new Rates();
      context.state.rates.take(answer.items, ["enqueued", "dequeued"]);
      return answer;
    },

    view(context) {
      const speed = context.state.rates;
      const count = (id, label, hint) => ({
        id,
        label,
        hint,
        sort: id,
        isNumber: true,
        cell: (row) => number(row[id]),
      });
      const columns = [
        {
          id: "name",
          label: "Name",
          sort: "name",
          isMain: true,
          cell: (row) => [h("a", { href: to(`${kind}s`, row.name) }, name(row.name)), tags(row)],
        },
        isQueue && count("size", "Pending", "Messages that are not acknowledged, those in flight included"),
        isQueue && count("in_flight", "In flight", "Messages that were delivered and are not acknowledged"),
        count("consumers", "Consumers"),
        count("producers", "Producers"),
        count("enqueued", "Enqueued", "Messages that were sent to it since this member became master"),
        count("dequeued", "Dequeued", "Messages that have left it since this member became master"),
        {
          id: "in",
          label: "In",
          hint: "Enqueued per second",
          isNumber: true,
          cell: (row) => rate(row.enqueue_rate ?? speed.of(row.name, 0)),
        },
        {
          id: "out",
          label: "Out",
          hint: "Dequeued per second",
          isNumber: true,
          cell: (row) => rate(row.dequeue_rate ?? speed.of(row.name, 1)),
        },
        {
          id: "memory",
          label: "Memory",
          sort: "memory_percent",
          isNumber: true,
          cell: (row) => h("span", { title: bytes(row.memory_bytes) }, percent(row.memory_percent)),
        },
      ].filter(Boolean);
      return pagedTable(context, {
        label: title,
        noun: `${kind}s`,
        columns,
        answer: context.data,
        key: (row) => row.name,
        defaults: { sort: "name", order: "asc" },
        filters: isQueue ? FILTERS : FILTERS.filter(([id]) => !id || id === "noConsumer"),
        none: `There are no ${kind}s yet: a client creates one by using it.`,
      });
    },
  };
}

function tags(row) {
  return [
    row.is_dead_letter_queue && [" ", tag("DLQ", row.size ? "warn" : "", "A dead letter queue")],
    row.is_paused && [" ", tag("paused", "warn", "No message is delivered")],
    row.is_temporary && [" ", tag("temporary")],
    row.kind === "queue" &&
      row.size > 0 &&
      !row.consumers &&
      !row.is_dead_letter_queue && [" ", tag("no consumer", "warn")],
  ];
}

// ---------------------------------------------------------------- one of them

function onePage(kind) {
  const isQueue = kind === "queue";
  return {
    title: (context) => `${isQueue ? "Queue" : "Topic"} ${visible(context.params.name)}`,
    heading: (context) => [
      h("a", { href: `#/${kind}s`, class: "up" }, isQueue ? "Queues" : "Topics"),
      " / ",
      name(context.params.name),
    ],
    needsMaster: true,

    actions: (context) => destinationActions(context, kind),

    async load(context, signal) {
      const [row, consumers] = await Promise.all([
        get(`${kind}s/${path(context.params.name)}`, {}, signal),
        get("consumers", { name: context.params.name, page_size: CONSUMERS_MAX }, signal),
      ]);
      const isItsOwn = (each) => each.kind === kind && each.destination.split(",").includes(row.name);
      context.state.rates ??= new Rates();
      context.state.rates.take([row], ["enqueued", "dequeued"]);
      return { row, consumers: consumers.items.filter(isItsOwn), isCut: consumers.count > CONSUMERS_MAX };
    },

    view(context) {
      const { row, consumers, isCut } = context.data;
      const speed = context.state.rates;
      return [
        isQueue && destinationTabs(row.name, false),
        h(
          "div",
          { class: "figures", key: "figures" },
          isQueue &&
            figure(
              "Pending",
              number(row.size),
              h("div", { class: "figure-more" }, `${number(row.in_flight)} in flight`),
            ),
          figure(
            "Enqueued",
            rate(row.enqueue_rate ?? speed.of(row.name, 0)),
            h("div", { class: "figure-more" }, `${number(row.enqueued)} in all`),
          ),
          figure(
            "Dequeued",
            rate(row.dequeue_rate ?? speed.of(row.name, 1)),
            h("div", { class: "figure-more" }, `${number(row.dequeued)} in all`),
          ),
          figure(
            "Consumers",
            number(row.consumers),
            h("div", { class: "figure-more" }, counted(row.producers, "producer")),
          ),
        ),
        section(
          "Consumers",
          { key: "consumers" },
          consumers.length ? consumerTable(consumers) : empty("No consumers are connected."),
          isCut && h("p", { class: "hint" }, `Of more than ${number(CONSUMERS_MAX)} consumers only some are shown.`),
        ),
        section("Counters", { key: "counters" }, counters(row)),
      ];
    },
  };
}

function counters(row) {
  return facts(
    [
      "State",
      [
        row.is_paused ? tag("paused", "warn") : "active",
        row.is_dead_letter_queue && " dead letter queue",
        row.is_temporary && " temporary",
      ],
    ],
    ["Dispatched", number(row.dispatched)],
    ["Expired", number(row.expired)],
    [
      "Wait of a message",
      `${duration(row.average_wait_seconds * 1000)} on average, ${duration(row.wait_seconds_max * 1000)} at most`,
    ],
    ["Message size", `${bytes(row.average_message_bytes)} on average, ${bytes(row.message_bytes_max)} at most`],
    ["Messages in memory", number(row.cached)],
    [
      "Memory",
      `${bytes(row.memory_bytes)}${row.memory_bytes_max ? ` of ${bytes(row.memory_bytes_max)}, ${percent(row.memory_percent)}` : ", no limit"}`,
    ],
  );
}

/** The two pages of a queue. */
export function destinationTabs(queue, isMessages) {
  const tab = (href, label, isHere) =>
    h("a", { key: label, href, class: isHere ? "tab here" : "tab", "aria-current": isHere ? "page" : null }, label);
  return h(
    "nav",
    { class: "tabs", key: "tabs", "aria-label": "Pages of the queue" },
    tab(to("queues", queue), "Overview", !isMessages),
    tab(to("queues", queue, "messages"), "Browse messages", isMessages),
  );
}

function destinationActions(context, kind) {
  const row = context.data?.row;
  if (!row) return null;
  return [
    context.may("operator") && button("Send message", () => sendMessage(context, kind, row.name), { key: "send" }),
    kind === "queue" &&
      context.may("operator") && [
        button(row.is_paused ? "Resume" : "Pause", () => setPaused(context, row.name, !row.is_paused), {
          key: "pause",
        }),
        button("Purge", () => purge(context, row), { key: "purge", class: "danger" }),
      ],
    context.may("admin") &&
      button("Delete", () => deleteDestination(context, kind, row), { key: "delete", class: "danger" }),
  ];
}

export const queuesPage = listPage("queue", "Queues");
export const topicsPage = listPage("topic", "Topics");
export const queuePage = onePage("queue");
export const topicPage = onePage("topic");
