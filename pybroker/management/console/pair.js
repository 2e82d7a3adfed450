// The members of an installation and their store, as a picture: who holds the lock, and who waits for it.

import { h } from "./dom.js";
import { ago, bytes, duration, now, visible } from "./format.js";

const BOX_HEIGHT = 92;
const STORE_HEIGHT = 64;
const GAP = 56;

/** The picture; `width` is that of its place, in pixels. */
export function pairPicture(state, width) {
  const members = state.members;
  const columns = Math.max(1, Math.min(members.length, Math.floor((width + 16) / 150)));
  const rows = Math.ceil(members.length / columns) || 1;
  const boxWidth = Math.min(230, (width - 16 * (columns - 1)) / columns);
  const left = (width - columns * boxWidth - (columns - 1) * 16) / 2;
  const bottom = rows * (BOX_HEIGHT + 12) - 12;
  const height = bottom + GAP + STORE_HEIGHT;
  const store = { x: Math.max(0, width / 2 - 140), y: bottom + GAP, width: Math.min(280, width) };
  const placed = members.map((member, index) => ({
    member,
    x: left + (index % columns) * (boxWidth + 16),
    y: Math.floor(index / columns) * (BOX_HEIGHT + 12),
    isLast: Math.floor(index / columns) === rows - 1,
  }));
  return h(
    "svg",
    { class: "pair", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": description(state) },
    placed.map(
      ({ member, x, y, isLast }, index) =>
        isLast && link(state, member, x + boxWidth / 2, y + BOX_HEIGHT, store, index, placed.length),
    ),
    placed.map(({ member, x, y }) => box(state, member, x, y, boxWidth)),
    storeBox(state, store),
  );
}

export function description(state) {
  const members = state.members.map((member) => `${visible(member.name)} is ${roleOf(member)}`);
  const holder = state.lock.is_held ? `the lock is held by ${visible(state.lock.holder)}` : "the lock is free";
  return [...members, holder].join("; ");
}

/** The role of a member in one word, in the terms of master and standby. */
export function roleOf(member) {
  if (!member.is_alive) return "down";
  if (member.is_silent) return "silent";
  return (
    { MASTER: "master", STANDBY: "standby", PROMOTING: "starting", RELINQUISHING: "stopping", STOPPED: "down" }[
      member.role
    ] ?? "unknown"
  );
}

/** The colour of a member's state. */
export function colourOf(member) {
  const role = roleOf(member);
  if (role === "down" || role === "silent" || member.obstacles.length) return "bad";
  if (member.warnings.length || role === "starting" || role === "stopping" || role === "unknown") return "warn";
  return "ok";
}

function holdsLock(state, member) {
  return state.lock.is_held && state.lock.holder === member.name;
}

function box(state, member, x, y, width) {
  const role = roleOf(member);
  const detail =
    role === "standby" && member.lag_bytes !== null
      ? `lag ${bytes(member.lag_bytes)}`
      : role === "master"
        ? `epoch ${member.epoch ?? "–"}`
        : member.problem
          ? "entry unreadable"
          : `seen ${ago(member.age_ms === null ? null : now() - member.age_ms)}`;
  return h(
    "g",
    { key: member.name, class: `member ${colourOf(member)}`, transform: `translate(${x.toFixed(1)} ${y})` },
    h("title", {}, `${visible(member.name)}${member.host ? ` on ${visible(member.host)}` : ""}`),
    h("rect", { class: "member-box", x: 0.5, y: 0.5, width: (width - 1).toFixed(1), height: BOX_HEIGHT - 1, rx: 8 }),
    h("circle", { class: "member-dot", cx: 18, cy: 25, r: 5 }),
    h("text", { class: "member-name", x: 31, y: 30 }, shortened(visible(member.name), (width - 44) / 8.4)),
    h(
      "text",
      { class: "member-role", x: 18, y: 53 },
      role,
      member.name === state.name && (width < 190 ? " · this" : " · this member"),
    ),
    h(
      "text",
      { class: "member-detail", x: 18, y: 74 },
      shortened(width < 190 ? detail : `${detail}${since(member)}`, (width - 30) / 6.4),
    ),
  );
}

function since(member) {
  return member.is_alive && member.since_ms ? ` · for ${duration(Math.max(0, now() - member.since_ms))}` : "";
}

function link(state, member, x, y, store, index, count) {
  const holds = holdsLock(state, member);
  const end = store.x + (store.width * ((index % count) + 1)) / (count + 1);
  const middle = y + GAP / 2;
  const path = `M${x.toFixed(1)} ${y}C${x.toFixed(1)} ${middle} ${end.toFixed(1)} ${middle} ${end.toFixed(1)} ${store.y}`;
  return h("path", {
    key: `link ${member.name}`,
    class: holds ? "link holds" : member.is_alive ? "link waits" : "link gone",
    d: path,
  });
}

function storeBox(state, store) {
  const { lock } = state;
  const line = lock.is_held
    ? `lock: ${visible(lock.holder)}${lock.held_since_ms ? `, ${duration(Math.max(0, now() - lock.held_since_ms))}` : ""}`
    : "lock: free";
  return h(
    "g",
    {
      key: "store",
      class: `store ${lock.is_held ? "ok" : "bad"}`,
      transform: `translate(${store.x.toFixed(1)} ${store.y})`,
    },
    h("title", {}, `${visible(state.store)}, ${lock.kind ?? "no"} lock ${visible(lock.path ?? "")}`),
    h("rect", {
      class: "store-box",
      x: 0.5,
      y: 0.5,
      width: (store.width - 1).toFixed(1),
      height: STORE_HEIGHT - 1,
      rx: 8,
    }),
    h("path", { class: "padlock", d: "M18 26v-4a5 5 0 0 1 10 0v4M15.5 26h15v11h-15z" }),
    h("text", { class: "store-lock", x: 42, y: 26 }, shortened(line, (store.width - 54) / 7.2)),
    h(
      "text",
      { class: "member-detail", x: 42, y: 46 },
      shortened(visible(state.store), (store.width - 54) / 6.6, true),
    ),
  );
}

function shortened(text, length, keepsEnd = false) {
  if (text.length <= length) return text;
  const most = Math.max(1, Math.floor(length) - 1);
  return keepsEnd ? `…${text.slice(-most)}` : `${text.slice(0, most)}…`;
}

// ---------------------------------------------------------------- promotions

const PHASES = ["following", "binding", "opening", "loading", "listening"];

/** The phases of a promotion from the lock to the listeners, as a bar with their times. */
export function phases(promotion) {
  const times = promotion.phases ?? {};
  const known = PHASES.filter((phase) => typeof times[phase] === "number");
  const total = known.reduce((sum, phase) => sum + times[phase], 0) || 1;
  return h(
    "div",
    { class: "phases" },
    h(
      "div",
      {
        class: "phase-bar",
        role: "img",
        "aria-label": `${duration(promotion.total_ms)} from the lock to the listeners`,
      },
      known.map((phase) =>
        h("div", {
          key: phase,
          class: `phase phase-${phase}`,
          style: { "flex-grow": String(Math.max(times[phase] / total, 0.004)) },
          title: `${phase} ${duration(times[phase])}`,
        }),
      ),
    ),
    h(
      "ul",
      { class: "phase-list" },
      known.map((phase) =>
        h(
          "li",
          { key: phase },
          h("span", { class: `phase-key phase-${phase}` }),
          phase,
          " ",
          h("b", {}, duration(times[phase])),
        ),
      ),
      typeof times.waiting === "number" &&
        h("li", { key: "waiting" }, "waited for the lock ", h("b", {}, duration(times.waiting))),
    ),
  );
}
