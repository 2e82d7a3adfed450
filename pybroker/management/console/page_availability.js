// High availability: the members, the lock, what has happened to them, and stepping down.

import { post } from "./api.js";
import { confirmByName } from "./dialog.js";
import { h } from "./dom.js";
import { ago, bytes, counted, dateTime, duration, mono, name, number, visible } from "./format.js";
import { masterText, picture, reasonItem } from "./frame.js";
import { colourOf, phases, roleOf } from "./pair.js";
import { button, empty, facts, notice, section, sentence, tag } from "./parts.js";
import { table } from "./table.js";

export const availabilityPage = {
  title: () => "High availability",
  needsState: true,

  load: async () => true,

  actions: (context) =>
    context.may("admin") && context.shell.state && button("Step down…", () => stepDown(context), { class: "danger" }),

  view(context) {
    const { state } = context.shell;
    if (!state) return empty("This member does not know the state of high availability.");
    return [
      state.reasons.length > 0 &&
        h("ul", { class: "warnings", key: "reasons", "aria-label": "Warnings" }, state.reasons.map(reasonItem)),
      !context.isMaster && notice("", h("b", {}, "This member is not the master."), " ", masterText(context.shell)),
      section("Pair", { key: "pair" }, h("div", { class: "beside" }, picture(state), lockFacts(state))),
      state.replica &&
        section("Replication", { key: "replication" }, replicaFacts(state.replica), replicaTable(state.replica)),
      section("Members", { key: "members" }, memberTable(state)),
      section(
        "Promotions",
        { key: "promotions" },
        state.promotions.length ? state.promotions.map(promotion) : empty("No promotions are known."),
      ),
      section(
        "History",
        { key: "history" },
        state.history.length ? historyTable(state.history) : empty("Nothing has happened yet."),
      ),
    ];
  },
};

function lockFacts({ lock, ...state }) {
  return facts(
    ["State", tag(state.state, { healthy: "ok", degraded: "bad" }[state.state] ?? "warn")],
    ["Last clean check", ago(state.last_clean_check_ms)],
    [
      "Lock",
      lock.is_held ? ["held by ", name(lock.holder), lock.holder_pid ? `, process ${lock.holder_pid}` : ""] : "free",
    ],
    ["Held since", lock.held_since_ms ? `${dateTime(lock.held_since_ms)}, ${ago(lock.held_since_ms)}` : null],
    ["Confirmed", lock.confirmed_ms ? ago(lock.confirmed_ms) : null],
    ["Kind of lock", lock.kind && name(lock.kind)],
    ["Lock at", lock.path && mono(lock.path)],
    ["Store", [mono(state.store), ` (${state.store_kind})`]],
    ["Free disk space", state.disk_free_bytes === null ? null : bytes(state.disk_free_bytes)],
    [
      "Clients connect to",
      state.listeners.length ? state.listeners.map((each) => h("div", { key: each }, mono(each))) : null,
    ],
    ["Reconnections", state.reconnections === null ? null : number(state.reconnections)],
  );
}

function replicaFacts(replica) {
  return facts(
    ["Cluster", replica.cluster && [name(replica.cluster), `, epoch ${number(replica.epoch)}`]],
    ["Confirmed on", `${counted(replica.in_sync_count, "disk")}, at least ${number(replica.minimum)}`],
    ["If the master fails", replica.successors && heirs(replica.successors)],
    ["This store", replica.is_in_sync ? tag("in sync", "ok") : tag("not in sync", "warn")],
    ["Compared", replica.last_verified_ms ? ago(replica.last_verified_ms) : null],
    ["Damaged", replica.damaged.length ? tag(replica.damaged.join(", "), "bad") : null],
    [
      "Election store answered",
      replica.register_age_seconds === null ? null : `${duration(replica.register_age_seconds * 1000)} ago`,
    ],
    ["Problem", replica.problem ? sentence(replica.problem) : null],
  );
}

function heirs(successors) {
  if (!successors.length) return tag("none could take over", "bad");
  return ["its place is taken by ", successors.map((each, index) => [index > 0 && " or ", name(each)])];
}

function replicaTable(replica) {
  const columns = [
    { id: "name", label: "Member", isMain: true, cell: (each) => name(each.name) },
    { id: "role", label: "Role", cell: roleOfReplica },
    {
      id: "sync",
      label: "Store",
      cell: (each) => (each.is_in_sync ? tag("in sync", "ok") : tag("not in sync", "warn")),
    },
    {
      id: "lag",
      label: "Lag",
      cell: (each) => (each.is_connected ? `${bytes(each.lag_bytes)}, ${duration(each.lag_seconds * 1000)}` : "–"),
    },
    { id: "left", label: "To be copied", cell: (each) => (each.left_bytes ? bytes(each.left_bytes) : "–") },
    { id: "verified", label: "Compared", cell: (each) => (each.verified_ms ? ago(each.verified_ms) : "–") },
    { id: "damaged", label: "Damaged files", isNumber: true, cell: (each) => number(each.damaged) },
  ];
  return table("Replicas", columns, replica.members, { key: (each) => each.store });
}

function roleOfReplica(member) {
  if (member.is_master) return tag("master", "ok");
  return member.is_connected ? tag("standby") : tag("not connected", "warn");
}

function memberTable(state) {
  const digests = new Set(state.members.map((each) => each.settings_digest).filter(Boolean));
  const columns = [
    {
      id: "name",
      label: "Member",
      isMain: true,
      cell: (each) => [name(each.name), each.name === state.name && [" ", tag("this member")]],
    },
    { id: "role", label: "Role", cell: (each) => tag(roleOf(each), colourOf(each)) },
    {
      id: "since",
      label: "Since",
      class: "time",
      cell: (each) => (each.since_ms ? h("span", { title: ago(each.since_ms) }, dateTime(each.since_ms)) : "–"),
    },
    {
      id: "lag",
      label: "Lag",
      cell: (each) =>
        each.lag_bytes === null
          ? "–"
          : `${bytes(each.lag_bytes)}${each.lag_seconds === null ? "" : `, ${duration(each.lag_seconds * 1000)}`}`,
    },
    { id: "epoch", label: "Epoch", isNumber: true, cell: (each) => number(each.epoch) },
    { id: "promotions", label: "Promotions", isNumber: true, cell: (each) => number(each.promotion_count) },
    {
      id: "host",
      label: "Host",
      cell: (each) => (each.host ? [name(each.host), each.pid ? `, process ${each.pid}` : ""] : "–"),
    },
    { id: "version", label: "Version", cell: (each) => name(each.version ?? "–") },
    {
      id: "digest",
      label: "Settings",
      cell: (each) =>
        each.settings_digest
          ? h(
              "span",
              { title: visible(each.settings_digest) },
              mono(each.settings_digest.slice(0, 8)),
              digests.size > 1 && [" ", tag("differ", "warn")],
            )
          : "–",
    },
    {
      id: "seen",
      label: "Seen",
      cell: (each) =>
        each.problem
          ? tag("unreadable", "bad", visible(each.problem))
          : each.age_ms === null
            ? "–"
            : `${duration(each.age_ms)} ago`,
    },
  ];
  return table("Members", columns, state.members, { key: (each) => each.name });
}

function promotion(entry) {
  return h(
    "div",
    { class: "promotion", key: `${entry.at_ms} ${entry.member}` },
    h(
      "div",
      { class: "promotion-head" },
      h("b", {}, name(entry.member)),
      ` became master at ${dateTime(entry.at_ms)}, in `,
      h("b", {}, duration(entry.total_ms)),
      entry.epoch ? `, epoch ${number(entry.epoch)}` : "",
    ),
    phases(entry),
  );
}

const COLOURS = { promotion: "ok", degraded: "bad", healthy: "ok" };

function alive(role) {
  return { role, is_alive: true, is_silent: false };
}

function historyTable(history) {
  const columns = [
    {
      id: "at",
      label: "At",
      class: "time",
      cell: (each) => h("span", { title: ago(each.at_ms) }, dateTime(each.at_ms)),
    },
    { id: "member", label: "Member", isMain: true, cell: (each) => name(each.member) },
    { id: "kind", label: "Event", cell: event },
    { id: "text", label: "What happened", class: "long", cell: happened },
  ];
  return table("History", columns, history, {
    key: (each) => `${each.at_ms} ${each.member} ${each.kind} ${each.role ?? ""}`,
  });
}

function event(entry) {
  return tag(entry.kind === "role" ? roleOf(alive(entry.role)) : visible(entry.kind), COLOURS[entry.kind] ?? "");
}

function happened(entry) {
  switch (entry.kind) {
    case "role":
      return sentence(entry.reason || roleOf(alive(entry.role)));
    case "promotion":
      return `It served ${duration(entry.total_ms)} after it had the lock.`;
    case "degraded":
      return (entry.reasons ?? []).map((each) => h("div", { key: each.text ?? each }, sentence(each.text ?? each)));
    case "healthy":
      return entry.degraded_ms ? `It was degraded for ${duration(entry.degraded_ms)}.` : "Nothing is wrong any more.";
    default:
      return mono(JSON.stringify(entry));
  }
}

async function stepDown(context) {
  const { state, overview } = context.shell;
  const standby = state.members.filter((each) => each.is_alive && each.role === "STANDBY");
  let force = false;
  await confirmByName({
    title: "Step down",
    object: state.name ?? overview.broker_name,
    label: "Step down",
    consequence: [
      "This member gives the lock up, and closes its listeners. ",
      standby.length
        ? [
            "Then ",
            standby.map((each, index) => [index > 0 && ", ", name(each.name)]),
            " takes over, and failover clients connect to it.",
          ]
        : h("b", {}, "No standby waits: there will be no master."),
    ],
    extra: (dialog) =>
      h(
        "label",
        { class: "check" },
        h("input", {
          type: "checkbox",
          checked: force,
          onchange: (event) => ((force = event.target.checked), dialog.redraw()),
        }),
        " Also if no standby is ready to take over",
      ),
    act: (signal) => post("stepdown", force ? { force } : {}, signal),
  });
  context.refresh();
}
