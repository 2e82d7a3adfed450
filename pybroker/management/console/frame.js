// The frame of each page: the member and its state, the ways to the pages, and what is said of a member that is silent or
// a standby.

import { h } from "./dom.js";
import { duration, name, prose, visible } from "./format.js";
import * as kept from "./kept.js";
import { pairPicture, roleOf } from "./pair.js";
import { button, choice, notice, sentence, tag } from "./parts.js";

const WAYS = [
  ["", "Overview", false],
  ["queues", "Queues", true],
  ["topics", "Topics", true],
  ["subscriptions", "Durable subscriptions", true],
  ["connections", "Connections", true],
  ["scheduled", "Scheduled", true],
  ["network", "Networks", true],
  ["journal", "Journal", false],
  ["ha", "High availability", false],
];
const THEMES = [
  ["", "System"],
  ["light", "Light"],
  ["dark", "Dark"],
];
const SECONDS = [
  ["2", "2 s"],
  ["3", "3 s"],
  ["5", "5 s"],
  ["15", "15 s"],
];

export function frame(context, actions, content) {
  const { shell } = context;
  return [
    h("a", { key: "skip", class: "skip", href: "#main", onclick: skip }, "Skip to the page"),
    h(
      "header",
      { key: "top", class: "top" },
      brand(shell, actions),
      stateOf(context),
      h("span", { class: "spring" }),
      controls(shell, actions),
      who(shell),
    ),
    h(
      "nav",
      { key: "side", id: "side", class: shell.isMenuOpen ? "side open" : "side", "aria-label": "Pages" },
      h(
        "ul",
        {},
        WAYS.map((way) => entry(context, ...way)),
      ),
      themes(actions),
    ),
    h("main", { key: "main", id: "main", tabindex: -1 }, content),
  ];
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function brand(shell, actions) {
  return [
    button(h("span", { "aria-hidden": "true" }, "☰"), actions.menu, {
      key: "menu",
      class: "menu plain",
      "aria-label": "Pages",
      "aria-expanded": String(shell.isMenuOpen),
      "aria-controls": "side",
    }),
    h(
      "a",
      { key: "brand", class: "brand", href: "#/" },
      h("img", { src: "icon.svg", alt: "", width: 22, height: 22 }),
      h("span", {}, "pybroker"),
    ),
  ];
}

function stateOf({ shell }) {
  const { overview, state } = shell;
  if (!overview) return null;
  const role = roleOf({ role: overview.role, is_alive: true, is_silent: false });
  const colour = { master: "ok", standby: "ok" }[role] ?? "warn";
  return h(
    "div",
    { key: "state", class: "top-state", role: "status" },
    h("span", { class: "top-name" }, name(state?.name ?? overview.broker_name)),
    shell.silence ? tag("no answer", "bad") : tag(role, colour),
    !shell.silence &&
      state &&
      h(
        "a",
        { href: "#/ha", class: `tag ${{ healthy: "ok", degraded: "bad" }[state.state] ?? ""}`.trim() },
        state.state === "unknown" ? "HA not checked" : state.state,
      ),
  );
}

function controls(shell, actions) {
  return h(
    "div",
    { key: "controls", class: "controls" },
    button(shell.isPaused ? "Paused" : "Live", actions.pause, {
      "aria-label": shell.isPaused ? "Paused: resume the refresh" : "Live: pause the refresh",
      title: "Pause or resume the refresh (p)",
      class: shell.isPaused ? "warn" : null,
    }),
    h(
      "label",
      { class: "interval" },
      h("span", {}, "every"),
      choice(String(shell.seconds), SECONDS, actions.interval, {
        "aria-label": "Refresh every",
        disabled: shell.isPaused,
      }),
    ),
    button(h("span", { "aria-hidden": "true" }, "⟳"), actions.refresh, {
      "aria-label": "Refresh now",
      title: "Refresh now (r)",
    }),
  );
}

function who(shell) {
  if (!shell.user) return null;
  return h(
    "span",
    {
      key: "who",
      class: "who",
      title: shell.user.role === "monitor" ? "This role may read everything, and change nothing." : null,
    },
    name(shell.user.user),
    " ",
    tag(shell.user.role),
  );
}

function entry(context, path, label, needsMaster) {
  const isHere = context.route.parts[0] === path;
  const isAway = needsMaster && context.shell.overview !== null && !context.isMaster;
  const title = isAway ? "Only the master has this" : null;
  return h(
    "li",
    { key: path },
    isAway
      ? h("span", { class: isHere ? "way away here" : "way away", role: "link", "aria-disabled": "true", title }, label)
      : h(
          "a",
          { class: isHere ? "way here" : "way", href: `#/${path}`, "aria-current": isHere ? "page" : null },
          label,
        ),
  );
}

function themes(actions) {
  const present = kept.read("theme");
  return h(
    "div",
    { class: "themes", role: "group", "aria-label": "Theme" },
    THEMES.map(([theme, label]) =>
      button(label, () => actions.theme(theme), { key: label, "aria-pressed": String(present === theme) }),
    ),
  );
}

// ---------------------------------------------------------------- members that do not serve

export function silence(shell, actions) {
  const seconds = Math.max(0, Math.ceil((shell.retryAtMs - performance.now()) / 1000));
  const since = shell.answeredAtMs
    ? ` Its last answer came ${duration(Math.floor((performance.now() - shell.answeredAtMs) / 1000) * 1000 || 1000)} ago.`
    : "";
  return h(
    "div",
    { key: "silence", class: "notice bad silence", role: "alert" },
    h("div", {}, h("b", {}, "The member does not answer"), ": ", prose(shell.silence.message), ".", since, others(shell)),
    h(
      "div",
      { class: "silence-retry" },
      h("span", {}, seconds ? `Next try in ${seconds} s` : "Trying…"),
      button("Try now", actions.refresh),
    ),
  );
}

/** The consoles of the other members, of which one may be master by now. */
function others(shell) {
  const links = (shell.state?.members ?? [])
    .filter((each) => each.name !== shell.state.name && each.is_alive)
    .map((each) => [each, consoleOf(each)])
    .filter(([, address]) => address);
  return links.map(([each, address]) => [" ", h("a", { href: address }, `Console of ${visible(each.name)}`)]);
}

export function standbyNotice(context) {
  const { shell } = context;
  const { overview } = shell;
  const role = roleOf({ role: overview.role, is_alive: true, is_silent: false });
  return h(
    "div",
    { key: "standby", class: "page" },
    notice(
      "",
      h("b", {}, `This member is ${role === "standby" ? "a standby" : role}.`),
      " Only the master has this page. ",
      masterText(shell),
    ),
    shell.state && h("div", { class: "section" }, picture(shell.state)),
  );
}

/** Who the master is, with a link to its console. */
export function masterText(shell) {
  const { state } = shell;
  if (!state) return null;
  const master = state.members.find((each) => each.name === state.master);
  if (!master) return "There is no master at the moment.";
  const address = consoleOf(master);
  return [
    "The master is ",
    name(master.name),
    address ? [": ", h("a", { href: address }, `console of ${visible(master.name)}`)] : ["."],
  ];
}

/** The address of a member's console: the one that it publishes, or else the same port of its host.
 *
 *  A member that listens on a loopback address is reached from its own host alone. */
function consoleOf(member) {
  const here = new URL(location.href);
  try {
    const url = new URL("console/", `${(member.management ?? guessed(member, here)).replace(/\/*$/, "")}/`);
    const isHere = url.host === here.host;
    return !isHere && (!isLoopback(url.hostname) || isLoopback(here.hostname)) ? url.href : null;
  } catch {
    return null; // it has no address that a browser understands
  }
}

function guessed(member, here) {
  const { hostname } = new URL(member.listeners[0].replace(/^[a-z+]+:/, "http:"));
  return `${here.protocol}//${hostname}:${here.port || (here.protocol === "https:" ? 443 : 80)}`;
}

function isLoopback(hostname) {
  return hostname === "localhost" || hostname === "[::1]" || /^127\./.test(hostname);
}

/** A reason why the pair is degraded. */
export function reasonItem({ member, text, is_obstacle: isObstacle }) {
  return h(
    "li",
    { key: `${member} ${text}`, class: `notice ${isObstacle ? "bad" : "warn"}` },
    h("b", {}, name(member)),
    ": ",
    sentence(text),
  );
}

/** The picture of the pair, as wide as its place. */
export function picture(state) {
  const width = Math.max(240, Math.min(560, document.documentElement.clientWidth - 56));
  return h("div", { class: "pair-frame" }, pairPicture(state, width));
}
