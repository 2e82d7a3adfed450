// The operations on queues and topics. Each opens a dialog: where something is destroyed, the object's name has to be
// typed, or the number of messages is counted first and shown.

import { get, operate, path, post, remove } from "./api.js";
import { buttons, confirmByName, form, openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { counted, mono, name, number } from "./format.js";
import { button, choice, failure, field, notice, sentence } from "./parts.js";

const COUNT_MS = 400;
const TARGET_HINTS = 20;

// ---------------------------------------------------------------- destinations

export function createDestination(context, kind) {
  let given = "";
  return openDialog(`Create ${kind}`, (dialog) => {
    const submit = async () => {
      if (!given) return;
      const answer = await dialog.run((signal) => post(`${kind}s`, { name: given }, signal));
      if (!answer) return;
      dialog.close();
      context.go(`#/${kind}s/${encodeURIComponent(given.toWellFormed())}`);
    };
    return form(
      field(
        "Name",
        h("input", {
          "data-first": true,
          value: given,
          autocomplete: "off",
          spellcheck: "false",
          oninput: (event) => ((given = event.target.value), dialog.redraw()),
        }),
      ),
      buttons(dialog, submit, { label: "Create", isReady: given !== "" }),
    );
  });
}

export async function deleteDestination(context, kind, row) {
  const losses = kind === "queue" ? `, with its ${counted(row.size, "message")}` : "";
  const isDone = await confirmByName({
    title: `Delete ${kind}`,
    object: row.name,
    label: "Delete",
    consequence: [
      "The ",
      kind,
      " ",
      name(row.name),
      " is deleted",
      h("b", {}, losses),
      ". Its clients create it again by using it.",
    ],
    act: (signal) => remove(`${kind}s/${path(row.name)}`, {}, signal),
  });
  if (isDone) context.go(`#/${kind}s`);
}

export async function purge(context, given) {
  const present = () => context.data?.row ?? given;
  const isDone = await confirmByName({
    title: "Purge queue",
    object: given.name,
    label: "Purge",
    consequence: () => [
      "All messages of ",
      name(given.name),
      " are removed: ",
      h("b", {}, `${counted(present().size, "message")} at present`),
      present().in_flight ? `. The ${number(present().in_flight)} that are in flight stay with their consumers.` : ".",
    ],
    act: async (signal, onProgress) => {
      const result = await operate(`queues/${path(given.name)}/purge`, {}, signal, onProgress);
      if (result.error) throw new Error(result.error);
    },
    extra: (dialog) => dialog.running && progressBar(dialog.progress, given.size - given.in_flight),
  });
  if (isDone) context.refresh();
}

export async function setPaused(context, queue, isPaused) {
  if (!isPaused) {
    await attempt(context, () => post(`queues/${path(queue)}/resume`));
    return;
  }
  await openDialog("Pause queue", (dialog) => {
    const submit = async () => {
      if (!(await dialog.run((signal) => post(`queues/${path(queue)}/pause`, {}, signal)))) return;
      dialog.close();
      context.refresh();
    };
    return form(
      h("p", {}, "Consumers of ", name(queue), " get no messages until it is resumed. Producers may go on sending."),
      buttons(dialog, submit, { label: "Pause" }),
    );
  });
}

/** Do something that needs no dialog, and show the error of it on the page. */
export async function attempt(context, act) {
  try {
    await act();
    await context.refresh();
  } catch (error) {
    context.error = error;
    context.redraw();
  }
}

// ---------------------------------------------------------------- many messages

const VERBS = {
  retry: {
    title: "Retry dead letters",
    label: "Retry",
    done: "sent to their original queues",
    doing: "will be sent again to the queues that they came from",
  },
  move: { title: "Move messages", label: "Move", done: "moved", doing: "will be moved", needsTarget: true },
  copy: { title: "Copy messages", label: "Copy", done: "copied", doing: "will be copied", needsTarget: true },
  remove: { title: "Remove messages", label: "Remove", done: "removed", doing: "will be removed", isDanger: true },
};

/** Retry, move, copy or remove messages of a queue: those with `ids`, or all that a selector selects. The dialog counts
 *  them first. Return True if it was done. */
export async function bulk(context, verb, queue, { ids = [], selector = "" }) {
  const bulkOperation = new BulkOperation(verb, queue, { ids, selector });
  await openDialog(VERBS[verb].title, (dialog) => bulkOperation.view(dialog));
  bulkOperation.stop();
  if (bulkOperation.result) await context.refresh();
  return bulkOperation.result !== null;
}

class BulkOperation {
  constructor(verb, queue, { ids, selector }) {
    this.verb = VERBS[verb];
    this.target = `queues/${path(queue)}/${verb}`;
    this.queue = queue;
    this.chosen = ids.length ? { message_ids: ids } : selector ? { selector } : {};
    this.ids = ids;
    this.selector = selector;
    this.toKind = "queue";
    this.toName = "";
    this.hints = [];
    this.maximum = "";
    this.counted = null;
    this.countError = null;
    this.result = null;
    this.timer = null;
    this.counting = null;
  }

  get body() {
    const body = { ...this.chosen };
    if (this.maximum) body.maximum = Number(this.maximum);
    if (this.verb.needsTarget) body.target = `${this.toKind}://${this.toName}`;
    return body;
  }

  get isComplete() {
    return (!this.verb.needsTarget || this.toName !== "") && /^\d*$/.test(this.maximum);
  }

  view(dialog) {
    if (this.result) return this.outcome(dialog);
    if (this.timer === null && this.counting === null && !this.counted && !this.countError && this.isComplete)
      this.countSoon(dialog, 0);
    if (dialog.running) return this.underWay(dialog);
    const isReady = this.counted !== null && this.counted.affected > 0;
    const label = isReady ? `${this.verb.label} ${counted(this.counted.affected, "message")}` : this.verb.label;
    return form(
      h("p", {}, "From ", name(this.queue), ": ", this.which()),
      this.verb.needsTarget && this.targetField(dialog),
      !this.ids.length &&
        field(
          "At most",
          h("input", {
            inputmode: "numeric",
            placeholder: "all",
            value: this.maximum,
            oninput: (event) => this.change(dialog, { maximum: event.target.value.trim() }),
          }),
        ),
      h(
        "div",
        { class: "dry-count", role: "status", "data-dry-count": this.counted ? this.counted.affected : null },
        this.count(dialog),
      ),
      buttons(dialog, () => isReady && this.act(dialog), { label, isReady, isDanger: this.verb.isDanger }),
    );
  }

  underWay(dialog) {
    const { affected, examined } = this.counted;
    return form(
      h("p", {}, "From ", name(this.queue), ": ", this.which()),
      this.verb.needsTarget && h("p", {}, "To ", name(this.body.target)),
      progressBar(dialog.progress, affected, examined),
      buttons(dialog, null, {}),
    );
  }

  which() {
    if (this.ids.length) return h("b", {}, `${counted(this.ids.length, "ticked message")}`);
    return this.selector ? ["messages that match ", mono(this.selector)] : h("b", {}, "all messages");
  }

  targetField(dialog) {
    return h(
      "div",
      { class: "field", key: "target" },
      h("span", {}, "To"),
      h(
        "div",
        { class: "joined" },
        choice(
          this.toKind,
          [
            ["queue", "queue"],
            ["topic", "topic"],
          ],
          (toKind) => this.change(dialog, { toKind }),
          { "aria-label": "Kind of the target" },
        ),
        h("input", {
          "data-first": true,
          "aria-label": "Name of the target",
          list: "targets",
          value: this.toName,
          autocomplete: "off",
          spellcheck: "false",
          oninput: (event) => {
            this.change(dialog, { toName: event.target.value });
            this.suggest(dialog);
          },
        }),
      ),
      h(
        "datalist",
        { id: "targets" },
        this.hints.map((each) => h("option", { key: each, value: each })),
      ),
    );
  }

  count() {
    if (this.countError) return failure(this.countError);
    if (this.counted === null)
      return this.isComplete
        ? "Counting…"
        : this.verb.needsTarget && !this.toName
          ? "Name the target to count the messages."
          : "The number at most is a whole number.";
    const { affected, examined, in_flight: inFlight, skipped } = this.counted;
    return [
      h("b", {}, counted(affected, "message")),
      ` of ${number(examined)} examined ${this.verb.doing}.`,
      inFlight > 0 && ` ${number(inFlight)} in flight ${inFlight === 1 ? "stays" : "stay"} with consumers.`,
      skipped > 0 && ` ${number(skipped)} ${skipped === 1 ? "is" : "are"} skipped.`,
    ];
  }

  outcome(dialog) {
    const { affected, skipped, in_flight: inFlight, is_cancelled: isCancelled, error } = this.result;
    return form(
      notice(
        error || isCancelled ? "warn" : "ok",
        h(
          "span",
          { role: "status" },
          h("b", {}, counted(affected, "message")),
          ` ${affected === 1 ? "was" : "were"} ${this.verb.done}.`,
          inFlight > 0 && ` ${number(inFlight)} in flight stayed.`,
          skipped > 0 && ` ${number(skipped)} skipped.`,
          isCancelled && " Then it was cancelled.",
          error && [" ", sentence(error)],
        ),
      ),
      h(
        "div",
        { class: "dialog-buttons" },
        button("Close", () => dialog.close(), {
          class: "primary",
          ref: (element) => queueMicrotask(() => element.focus()),
        }),
      ),
    );
  }

  change(dialog, values, error = null) {
    Object.assign(this, values);
    this.counted = null;
    this.countError = null;
    dialog.error = error;
    this.stop();
    if (this.isComplete) this.countSoon(dialog, COUNT_MS);
    dialog.redraw();
  }

  countSoon(dialog, ms) {
    this.timer = setTimeout(async () => {
      this.timer = null;
      this.counting = new AbortController();
      const { signal } = this.counting;
      try {
        this.counted = await post(this.target, { ...this.body, dry_run: true }, signal);
      } catch (error) {
        if (signal.aborted) return;
        this.countError = error;
      }
      this.counting = null;
      dialog.redraw();
    }, ms);
  }

  stop() {
    clearTimeout(this.timer);
    this.counting?.abort();
    this.timer = null;
    this.counting = null;
  }

  async suggest(dialog) {
    if (this.toKind !== "queue" || !this.toName) return;
    const asked = this.toName;
    const answer = await get("queues", { name: asked, page_size: TARGET_HINTS, sort: "name" }).catch(() => null); // hints only
    if (!answer || asked !== this.toName) return;
    this.hints = answer.items.map((row) => row.name);
    dialog.redraw();
  }

  async act(dialog) {
    const result = await dialog.run((signal, onProgress) => operate(this.target, this.body, signal, onProgress));
    if (!result) return this.change(dialog, {}, dialog.error); // a part may have been done: count again
    this.result = result;
    dialog.redraw();
  }
}

/** How far an operation is that is expected to affect so many messages, of those that it examines. */
function progressBar(progress, affected, examined = affected) {
  const now = progress ?? { affected: 0, examined: 0 };
  return h(
    "div",
    { class: "progress", key: "progress" },
    h("progress", { max: Math.max(1, examined), value: Math.min(now.examined, examined), "aria-label": "Progress" }),
    `${number(now.affected)} of ${counted(affected, "message")} so far`,
  );
}

// ---------------------------------------------------------------- sending

const PROPERTY_TYPES = [
  ["string", "string"],
  ["number", "number"],
  ["boolean", "boolean"],
];

export function sendMessage(context, kind, destination) {
  const values = {
    body: "",
    body_type: "text",
    persistent: true,
    priority: "4",
    time_to_live_ms: "0",
    correlation_id: "",
    type: "",
    reply_to: "",
    group_id: "",
  };
  const properties = [];
  let sent = null;
  return openDialog("Send a message", (dialog) => {
    const input = (id, props = {}) =>
      h("input", {
        value: values[id],
        autocomplete: "off",
        spellcheck: "false",
        oninput: (event) => (values[id] = event.target.value),
        ...props,
      });
    const submit = async () => {
      const answer = await dialog.run((signal) =>
        post(`${kind}s/${path(destination)}/messages`, messageOf(values, properties), signal),
      );
      if (!answer) return;
      sent = answer.message_id;
      dialog.redraw();
      context.refresh();
    };
    return form(
      h("p", {}, "To the ", kind, " ", name(destination)),
      field(
        "Body",
        h("textarea", {
          "data-first": true,
          class: "code",
          rows: 6,
          spellcheck: "false",
          value: values.body,
          oninput: (event) => (values.body = event.target.value),
        }),
      ),
      h(
        "div",
        { class: "fields" },
        field(
          "Body type",
          choice(
            values.body_type,
            [
              ["text", "text"],
              ["bytes", "bytes, in base64"],
              ["map", "map, as a JSON object"],
            ],
            (value) => (values.body_type = value),
          ),
        ),
        field(
          "Delivery",
          choice(
            String(values.persistent),
            [
              ["true", "persistent"],
              ["false", "not persistent"],
            ],
            (value) => (values.persistent = value === "true"),
          ),
        ),
        field("Priority", input("priority", { type: "number", min: 0, max: 9 })),
        field("Time to live, ms", input("time_to_live_ms", { type: "number", min: 0 }), "0: it does not expire"),
        field("Correlation ID", input("correlation_id")),
        field("Type", input("type")),
        field("Reply to", input("reply_to", { placeholder: "queue://NAME" })),
        field("Group", input("group_id")),
      ),
      propertyFields(properties, dialog),
      sent !== null && notice("ok", h("span", { role: "status" }, "Sent as ", mono(sent), ".")),
      buttons(dialog, submit, { label: sent === null ? "Send" : "Send another" }),
    );
  });
}

function propertyFields(properties, dialog) {
  const change = (act) => {
    act();
    dialog.redraw();
  };
  return h(
    "fieldset",
    { class: "properties" },
    h("legend", {}, "Properties"),
    properties.map((each) =>
      h(
        "div",
        { class: "joined", key: each.id },
        h("input", {
          "aria-label": "Name of the property",
          placeholder: "name",
          value: each.name,
          oninput: (event) => (each.name = event.target.value),
        }),
        choice(each.type, PROPERTY_TYPES, (type) => (each.type = type), { "aria-label": "Type of the property" }),
        h("input", {
          "aria-label": "Value of the property",
          placeholder: "value",
          value: each.value,
          oninput: (event) => (each.value = event.target.value),
        }),
        button("Remove", () => change(() => properties.splice(properties.indexOf(each), 1))),
      ),
    ),
    button("Add property", () =>
      change(() =>
        properties.push({ id: crypto.randomUUID?.() ?? String(Math.random()), name: "", type: "string", value: "" }),
      ),
    ),
  );
}

function messageOf(values, properties) {
  const message = {
    body: values.body,
    body_type: values.body_type,
    persistent: values.persistent,
    priority: Number(values.priority),
    time_to_live_ms: Number(values.time_to_live_ms),
  };
  if (values.body_type === "map") message.body = JSON.parse(values.body);
  for (const each of ["correlation_id", "type", "reply_to", "group_id"]) if (values[each]) message[each] = values[each];
  message.properties = Object.fromEntries(
    properties.filter((each) => each.name).map((each) => [each.name, valueOf(each)]),
  );
  return message;
}

function valueOf({ name: property, type, value }) {
  if (type === "boolean") return value.trim().toLowerCase() === "true";
  if (type === "string") return value;
  if (value.trim() === "" || Number.isNaN(Number(value)))
    throw new Error(`the property ${property} is a number, not ${value || "empty"}`);
  return Number(value);
}
