// The messages of a queue or of a durable subscription, by cursor, and one message in full.

import { ApiError, get, path } from "./api.js";
import { bodyView, textOfBytes } from "./body.js";
import { h } from "./dom.js";
import { ago, bytes, counted, dateTime, mono, name, number, prose, visible } from "./format.js";
import { bulk, purge, sendMessage } from "./operations.js";
import { destinationTabs } from "./page_destinations.js";
import { button, choice, empty, facts, notice, section, tag, to } from "./parts.js";
import { filterField, table } from "./table.js";

const COUNTS = [
  ["25", "25 a page"],
  ["50", "50 a page"],
  ["100", "100 a page"],
  ["250", "250 a page"],
];
const PREVIEW_LENGTH = 90;
const ID_END = 14;
const LARGE_BYTES = 65_536;

/** The cursors of the pages before this one, by place: an address has only its own. */
const trails = new Map();

/** The messages' place: of a queue, or of a durable subscription. */
function placeOf({ kind, name: queue, key }) {
  const isQueue = kind === "queues";
  const own = isQueue ? queue : key;
  return {
    isQueue,
    own,
    api: () => `${kind}/${path(own)}`,
    address: to(kind, own, "messages"),
    up: isQueue ? to(kind, own) : "#/subscriptions",
  };
}

export const messagesPage = {
  title: (context) => `Messages of ${visible(context.params.name ?? context.params.key)}`,
  heading(context) {
    const { isQueue, own } = placeOf(context.params);
    return [
      h(
        "a",
        { class: "up", href: isQueue ? "#/queues" : "#/subscriptions" },
        isQueue ? "Queues" : "Durable subscriptions",
      ),
      " / ",
      name(own),
    ];
  },
  needsMaster: true,

  actions(context) {
    const { isQueue, own } = placeOf(context.params);
    if (!isQueue || !context.may("operator") || !context.data.row) return null;
    return [
      button("Send message", () => sendMessage(context, "queue", own), { key: "send" }),
      button("Purge", () => purge(context, context.data.row), { key: "purge", class: "danger" }),
    ];
  },

  async load(context, signal) {
    const { query } = context.route;
    const { isQueue, api } = placeOf(context.params);
    const asked = {
      after: query.get("after"),
      last: query.get("last"),
      count: query.get("count") ?? 50,
      selector: query.get("selector"),
      body: "preview",
    };
    const [page, row] = await Promise.all([
      get(`${api()}/messages`, asked, signal),
      isQueue ? get(api(), {}, signal) : null,
    ]);
    return { page, row };
  },

  view(context) {
    const place = placeOf(context.params);
    const { page, row } = context.data;
    context.state.ticked ??= new Set();
    const isDeadLetters = Boolean(row?.is_dead_letter_queue);
    return [
      place.isQueue && destinationTabs(place.own, true),
      browserBar(context),
      place.isQueue && context.may("operator") && bulkBar(context, place, isDeadLetters),
      page.messages.length
        ? messageTable(context, place, page.messages, isDeadLetters)
        : h("div", { key: "none" }, empty(noneText(context, page))),
      cursorBar(context, place, page, row),
    ];
  },
};

function noneText(context, { end, examined }) {
  if (end === "time" || end === "bytes")
    return `None of ${number(examined)} messages matched so far: go on to the next page.`;
  if (context.route.query.get("after")) return "There are no messages after these.";
  return context.route.query.get("selector") ? "No messages match the selector." : "There are no messages.";
}

function browserBar(context) {
  const { query } = context.route;
  const restart = (values) => {
    trails.delete(context.route.path);
    context.state.ticked.clear();
    context.change({ after: null, last: null, ...values }, { replaces: true });
  };
  return h(
    "div",
    { class: "toolbar", key: "toolbar" },
    filterField(
      context,
      "Selector, such as JMSPriority > 4 AND region = 'north'",
      query.get("selector") ?? "",
      (selector) => restart({ selector }),
      { isWide: true },
    ),
    choice(query.get("count") ?? "50", COUNTS, (count) => restart({ count }), { "aria-label": "Messages of a page" }),
  );
}

function bulkBar(context, place, isDeadLetters) {
  const { ticked } = context.state;
  const selector = context.route.query.get("selector") ?? "";
  const act = (verb) => async () => {
    if (await bulk(context, verb, place.own, { ids: [...ticked], selector })) {
      ticked.clear();
      context.redraw();
    }
  };
  const which = ticked.size
    ? counted(ticked.size, "ticked message")
    : selector
      ? "All that match the selector"
      : "All messages";
  return h(
    "div",
    { class: "bulk", key: "bulk", role: "group", "aria-label": "Operations on messages" },
    h("span", { class: "bulk-which", role: "status" }, which, ":"),
    isDeadLetters && button("Retry…", act("retry"), { key: "retry" }),
    button("Move…", act("move"), { key: "move" }),
    button("Copy…", act("copy"), { key: "copy" }),
    button("Remove…", act("remove"), {
      key: "remove",
      class: "danger",
      disabled: !ticked.size && !selector,
      title: ticked.size || selector ? null : "Tick messages, or give a selector; to remove all, purge the queue",
    }),
    ticked.size > 0 && button("Untick all", () => (ticked.clear(), context.redraw()), { key: "untick" }),
  );
}

function messageTable(context, place, messages, isDeadLetters) {
  const { ticked } = context.state;
  const tick = (id) => (event) => {
    if (event.target.checked) ticked.add(id);
    else ticked.delete(id);
    context.redraw();
  };
  const ticks = messages.filter((each) => ticked.has(each.message_id)).length;
  const all = h("input", {
    type: "checkbox",
    "aria-label": "Tick all messages of the page",
    checked: ticks === messages.length,
    indeterminate: ticks > 0 && ticks < messages.length,
    onchange: (event) => {
      for (const each of messages) event.target.checked ? ticked.add(each.message_id) : ticked.delete(each.message_id);
      context.redraw();
    },
  });
  const address = (each) =>
    `${place.address}/${encodeURIComponent(each.message_id.toWellFormed())}${place.isQueue ? "" : `?position=${each.position}`}`;
  const columns = [
    place.isQueue &&
      context.may("operator") && {
        id: "tick",
        label: all,
        class: "tick",
        cell: (each) =>
          h("input", {
            type: "checkbox",
            "aria-label": `Tick ${visible(each.message_id)}`,
            checked: ticked.has(each.message_id),
            onchange: tick(each.message_id),
          }),
      },
    {
      id: "id",
      label: "Message",
      isMain: true,
      class: "message",
      cell: (each) => [
        h("a", { href: address(each), class: "message-link" }, preview(each)),
        messageId(each.message_id),
      ],
    },
    isDeadLetters && {
      id: "cause",
      label: "Why dead-lettered",
      cell: (each) =>
        each.dead_letter_cause
          ? h("span", { class: "clamp", title: visible(each.dead_letter_cause) }, prose(each.dead_letter_cause))
          : "–",
    },
    isDeadLetters && {
      id: "origin",
      label: "From",
      cell: (each) => (each.original_destination ? name(each.original_destination) : "–"),
    },
    {
      id: "sent",
      label: "Sent",
      class: "time",
      cell: (each) => h("span", { title: ago(each.timestamp_ms) }, dateTime(each.timestamp_ms)),
    },
    { id: "priority", label: "Priority", isNumber: true, cell: (each) => number(each.priority) },
    { id: "redelivered", label: "Redelivered", isNumber: true, cell: (each) => number(each.redelivery_count) },
    { id: "size", label: "Size", isNumber: true, cell: (each) => bytes(each.size) },
    { id: "state", label: "State", cell: state },
  ].filter(Boolean);
  return h("div", { key: "messages" }, table("Messages", columns, messages, { key: (each) => each.message_id }));
}

/** An id that shows its end where there is no space for all: that is what differs between two messages. */
function messageId(id) {
  const characters = Array.from(id);
  return h(
    "div",
    { class: "message-id", title: visible(id) },
    mono(characters.slice(0, -ID_END).join("")),
    mono(characters.slice(-ID_END).join("")),
  );
}

function preview({ body, body_type: type, body_is_cut: isCut, size }) {
  if (body === null || body === undefined) return `${type === "none" ? "no body" : `${type} body`}`;
  const text = previewText(body, type, isCut);
  if (text === null) return `${type}, ${bytes(size)}`;
  if (!text) return "empty text";
  const line = text.slice(0, PREVIEW_LENGTH).replace(/\s+/g, " ");
  return [prose(line), (isCut || text.length > PREVIEW_LENGTH) && "…"];
}

/** The text of a body; null where it is none. Many STOMP clients send texts as bytes. */
function previewText(body, type, isCut) {
  if (type === "object" || (type === "bytes" && !body)) return null;
  if (type === "bytes") return textOfBytes(body, isCut);
  return typeof body === "string" ? body : JSON.stringify(body);
}

function state(each) {
  if (each.state !== "in flight") return h("span", { class: "hint" }, each.state ?? "–");
  const holder = each.holder;
  if (!holder) return tag("in flight", "warn");
  const text = holder.client_id || holder.connection_id;
  const link = h(
    "a",
    { href: to("connections", holder.connection_id), class: "holder", title: visible(text) },
    name(text),
  );
  return [tag("in flight", "warn"), " ", link];
}

/** The way to the next and former pages. `end` says why a page has ended. */
function cursorBar(context, place, page, row) {
  const { route } = context;
  const after = route.query.get("after");
  const trail = trails.get(route.path) ?? [];
  const leadTo = (place) => () => {
    trails.set(route.path, [...trail, after]);
    context.change(place);
  };
  const former = () => {
    const cursor = trail.at(-1) ?? null;
    trails.set(route.path, trail.slice(0, -1));
    context.change({ after: cursor, last: null });
  };
  const isFirst = !after && !route.query.get("last");
  const isLast = page.end === "last";
  const size = row ? ` of ${number(row.size)}` : "";
  const reasons = { time: "the search took its time", bytes: "the page is large enough" };
  return h(
    "nav",
    { class: "pager", key: "pager", "aria-label": "Pages of messages" },
    button("‹ First", () => (trails.delete(route.path), context.change({ after: null, last: null })), {
      disabled: isFirst,
      key: "first",
    }),
    button("‹ Previous", former, { disabled: isFirst || !trail.length, key: "former" }),
    h(
      "span",
      { key: "text" },
      `${counted(page.messages.length, "message")}${after ? "" : size}${reasons[page.end] ? `, ${number(page.examined)} examined: ${reasons[page.end]}` : ""}`,
    ),
    button("Next ›", leadTo({ after: page.cursor, last: null }), { disabled: isLast, key: "next" }),
    !route.query.get("selector") &&
      button("Last ›", leadTo({ after: null, last: true }), { disabled: isLast, key: "last" }),
  );
}

// ---------------------------------------------------------------- one message

export const messagePage = {
  title: (context) => `Message ${visible(context.params.message)}`,
  heading(context) {
    const place = placeOf(context.params);
    return [h("a", { class: "up", href: place.address }, name(place.own)), " / ", "message"];
  },
  needsMaster: true,

  async load(context, signal) {
    const { isQueue, api } = placeOf(context.params);
    if (context.data?.message.size > LARGE_BYTES) return context.data; // it does not change, and is long
    if (isQueue) return { message: await get(`${api()}/messages/${path(context.params.message)}`, {}, signal) };
    const position = Number(context.route.query.get("position"));
    const after = position > 0 ? position - 1 : null; // the cursor of what is before it
    const page = await get(`${api()}/messages`, { after, count: 1, body: "full" }, signal);
    if (page.messages[0]?.message_id !== context.params.message)
      throw new ApiError(404, "this message is no longer there");
    return { message: page.messages[0] };
  },

  actions(context) {
    const place = placeOf(context.params);
    const { message } = context.data;
    if (!place.isQueue || !context.may("operator")) return null;
    const act = (verb) => async () => {
      const isDone = await bulk(context, verb, place.own, { ids: [message.message_id] });
      if (isDone && verb !== "copy") context.go(place.address);
    };
    return [
      message.original_destination && button("Retry…", act("retry"), { key: "retry" }),
      button("Move…", act("move"), { key: "move" }),
      button("Copy…", act("copy"), { key: "copy" }),
      button("Remove…", act("remove"), { key: "remove", class: "danger" }),
    ];
  },

  view(context) {
    const { message } = context.data;
    return [
      message.dead_letter_cause &&
        h(
          "div",
          { key: "cause" },
          notice("warn", h("b", {}, "Why it is dead-lettered: "), prose(message.dead_letter_cause)),
        ),
      section("Body", { key: "body" }, bodyView(context, message)),
      h(
        "div",
        { class: "beside even", key: "heads" },
        section("Headers", { key: "headers" }, headers(message)),
        section("Properties", { key: "properties" }, properties(message.properties)),
      ),
    ];
  },
};

function headers(message) {
  return facts(
    ["Message ID", mono(message.message_id)],
    ["State", state(message)],
    ["Destination", message.destination && name(message.destination)],
    ["Original destination", message.original_destination && name(message.original_destination)],
    ["Persistence", message.persistent ? "persistent" : "not persistent"],
    ["Priority", number(message.priority)],
    ["Sent", `${dateTime(message.timestamp_ms)}, ${ago(message.timestamp_ms)}`],
    ["Expires", message.expiration_ms ? dateTime(message.expiration_ms) : "never"],
    ["Redelivered", counted(message.redelivery_count, "time")],
    ["Correlation ID", message.correlation_id && mono(message.correlation_id)],
    ["Type", message.type && name(message.type)],
    ["Reply to", message.reply_to && name(message.reply_to)],
    ["Group", message.group_id && [name(message.group_id), `, number ${number(message.group_sequence)}`]],
    ["User", message.user && name(message.user)],
    ["Size", bytes(message.size)],
  );
}

function properties(values) {
  const entries = Object.entries(values ?? {});
  if (!entries.length) return empty("It has no properties.");
  const columns = [
    { id: "name", label: "Name", isMain: true, cell: ([each]) => name(each) },
    { id: "type", label: "Type", cell: ([, value]) => (value === null ? "null" : typeof value) },
    {
      id: "value",
      label: "Value",
      cell: ([, value]) => mono(typeof value === "string" ? value : JSON.stringify(value)),
    },
  ];
  return table("Properties", columns, entries, { key: ([each]) => each });
}
