// The console: its frame, its addresses, and the refresh of what is shown.
//
// A page is an object: `title(context)`; `load(context, signal)`, which returns its data; `view(context)`, which
// describes it; `needsMaster`; `needsState`, for one that shows the state of high availability.

import { ApiError, NoAnswer, get } from "./api.js";
import { h, patch } from "./dom.js";
import { frame, silence, standbyNotice } from "./frame.js";
import { connectionPage, connectionsPage } from "./page_connections.js";
import { queuePage, queuesPage, topicPage, topicsPage } from "./page_destinations.js";
import { availabilityPage } from "./page_availability.js";
import { journalPage } from "./page_journal.js";
import { messagePage, messagesPage } from "./page_messages.js";
import { networkPage } from "./page_network.js";
import { overviewPage } from "./page_overview.js";
import { scheduledPage } from "./page_scheduled.js";
import { subscriptionsPage } from "./page_subscriptions.js";
import { failure, notice } from "./parts.js";
import { visible } from "./format.js";
import * as kept from "./kept.js";

const PAGES = [
  [[""], overviewPage],
  [["queues"], queuesPage],
  [["queues", ":name"], queuePage],
  [["queues", ":name", "messages"], messagesPage],
  [["queues", ":name", "messages", ":message"], messagePage],
  [["topics"], topicsPage],
  [["topics", ":name"], topicPage],
  [["subscriptions"], subscriptionsPage],
  [["subscriptions", ":key", "messages"], messagesPage],
  [["subscriptions", ":key", "messages", ":message"], messagePage],
  [["connections"], connectionsPage],
  [["connections", ":id"], connectionPage],
  [["scheduled"], scheduledPage],
  [["network"], networkPage],
  [["journal"], journalPage],
  [["ha"], availabilityPage],
];
const NOWHERE = {
  title: () => "No such page",
  load: async () => null,
  view: () => notice("", "There is no such page."),
};
const ROLES = ["monitor", "operator", "admin"];
const STATE_MS = 15_000;
const RETRY_MS = [1000, 1000, 2000, 3000, 5000];
const BUSY_SHARE = 0.2; // of the time in which the member works for a page that stays open, such as on a long search

/** What is known of the member, whatever the page is. */
const shell = {
  overview: null,
  user: null,
  state: null, // of high availability
  stateAtMs: -STATE_MS,
  silence: null, // the error, since the member does not answer
  failures: 0,
  retryAtMs: 0,
  answeredAtMs: 0,
  isPaused: false,
  seconds: Number(kept.read("seconds")) || 3,
  tookMs: 0, // the last refresh
  isMenuOpen: false,
};

/** The page that is shown. */
class Context {
  constructor(route) {
    this.route = route;
    this.page = route.page;
    this.state = {};
    this.data = null;
    this.error = null;
    this.shell = shell;
  }

  get isMaster() {
    return shell.overview?.role === "MASTER";
  }

  get params() {
    return this.route.params;
  }

  /** True if the user has a role, and the member can be changed. */
  may(role) {
    return this.isMaster && this.hasRole(role);
  }

  hasRole(role) {
    return ROLES.indexOf(shell.user?.role) >= ROLES.indexOf(role);
  }

  redraw() {
    if (context === this) draw();
  }

  refresh() {
    return refresh();
  }

  /** Change the query of the address; empty values are left out. */
  change(values, { replaces = false } = {}) {
    const query = new URLSearchParams(this.route.query);
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === undefined || value === "") query.delete(name);
      else query.set(name, String(value));
    }
    go(`#/${this.route.path}${query.size ? `?${query}` : ""}`, replaces);
  }

  go(address) {
    go(address, false);
  }
}

let context = new Context(routeOf(location.hash));
let loading = new AbortController();
let timer = 0;
let isTraversing = false;
const scrolls = new Map();

// ---------------------------------------------------------------- addresses

function routeOf(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decoded);
  for (const [pattern, page] of PAGES) {
    if (
      pattern.length === parts.length &&
      pattern.every((part, index) => part === parts[index] || (part[0] === ":" && parts[index]))
    ) {
      const params = Object.fromEntries(
        pattern.map((part, index) => [part.slice(1), parts[index]]).filter((_, index) => pattern[index][0] === ":"),
      );
      return { path, parts, page, params: { kind: parts[0], ...params }, query: new URLSearchParams(search) };
    }
  }
  return { path, parts, page: NOWHERE, params: {}, query: new URLSearchParams(search) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}

function go(address, replaces) {
  if (address === location.hash) return;
  history[replaces ? "replaceState" : "pushState"](null, "", address);
  follow();
}

function follow() {
  const route = routeOf(location.hash);
  const isSamePage = route.path === context.route.path;
  clearTimeout(context.state.typing);
  shell.isMenuOpen = false;
  if (isSamePage) {
    context.route = route; // with another query: what is shown stays until the answer comes
    context.page.changed?.(context);
  } else {
    scrolls.set(context.route.path, window.scrollY);
    context = new Context(route);
    window.scrollTo(0, 0);
  }
  draw();
  if (!isSamePage) document.querySelector("h1")?.focus({ preventScroll: true });
  const top = isTraversing && !isSamePage ? scrolls.get(route.path) : undefined;
  isTraversing = false;
  refresh().then(() => top !== undefined && window.scrollTo(0, top));
}

// ---------------------------------------------------------------- refresh

async function refresh() {
  clearTimeout(timer);
  loading.abort();
  loading = new AbortController();
  const { signal } = loading;
  const shown = context;
  const begunAtMs = performance.now();
  let wasMaster = shown.isMaster;
  try {
    const isFirst = shell.overview === null || shell.silence !== null;
    if (isFirst) await loadShell(shown, signal); // only then is it known whether there is more to ask for
    wasMaster = shown.isMaster;
    const isLoaded = wasMaster || !shown.page.needsMaster;
    const [, page] = await Promise.allSettled([
      isFirst ? null : loadShell(shown, signal),
      isLoaded ? shown.page.load(shown, signal) : null,
    ]).then((all) => {
      for (const { reason } of all)
        if (reason instanceof NoAnswer || signal.aborted || reason?.status === 401) throw reason;
      if (all[0].reason) throw all[0].reason;
      return all;
    });
    shown.error = page.reason ?? null;
    if (page.status === "fulfilled" && isLoaded) shown.data = page.value;
    if (!isLoaded) shown.data = null; // what it had as master is not true any more
    if (page.reason && !(page.reason instanceof ApiError)) throw page.reason;
    shell.tookMs = performance.now() - begunAtMs;
    answered();
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof NoAnswer) failed(error);
    else if (error instanceof ApiError) {
      answered();
      shown.error = error;
      shown.isStopped = error.status === 401 || error.status === 403;
    } else {
      shown.error = error;
      draw();
      throw error;
    }
  }
  draw();
  const hasChanged = shown.isMaster !== wasMaster && !shell.silence;
  if (hasChanged && context === shown)
    timer = setTimeout(refresh); // the page was loaded for the former role
  else schedule();
}

function answered() {
  shell.silence = null;
  shell.failures = 0;
  shell.answeredAtMs = performance.now();
}

function failed(error) {
  shell.silence = error;
  shell.user = null; // another user may be asked for a login when the member is back
  shell.retryAtMs = performance.now() + RETRY_MS[Math.min(shell.failures, RETRY_MS.length - 1)];
  shell.failures += 1;
}

async function loadShell(shown, signal) {
  const isStateDue =
    shown.page.needsState || performance.now() - shell.stateAtMs > STATE_MS || shell.overview?.role !== "MASTER";
  const [overview, user, state] = await Promise.all([
    get("overview", {}, signal),
    shell.user ?? get("whoami", {}, signal).catch(unlessMissing),
    isStateDue ? get("ha", {}, signal).catch(unlessMissing) : shell.state,
  ]);
  if (isStateDue) shell.stateAtMs = performance.now();
  Object.assign(shell, { overview, user, state });
}

/** A member that has nothing at an address is shown without it. */
function unlessMissing(error) {
  if (error instanceof ApiError && (error.status === 404 || error.status === 501)) return null;
  throw error;
}

function schedule() {
  clearTimeout(timer);
  if (document.hidden || (context.isStopped && !shell.silence)) return;
  if (shell.silence) timer = setTimeout(refresh, Math.max(0, shell.retryAtMs - performance.now()));
  else if (!shell.isPaused)
    timer = setTimeout(refresh, Math.max(shell.seconds * 1000, shell.tookMs / BUSY_SHARE - shell.tookMs));
}

// ---------------------------------------------------------------- drawing

function draw() {
  const title = context.page.title(context);
  const broker = shell.overview ? visible(shell.state?.name ?? shell.overview.broker_name) : "";
  document.title = [shell.silence ? "No answer" : title, broker, "pybroker"].filter(Boolean).join(" · ");
  patch(document.getElementById("app"), frame(context, actions, content(title)));
}

function content(title) {
  const { page, data, error } = context;
  const isAway = page.needsMaster && shell.overview && !context.isMaster;
  const parts = [];
  if (shell.silence) parts.push(silence(shell, actions));
  if (error && !isAway)
    parts.push(
      h(
        "div",
        { key: "error" },
        failure(error),
        error.status === 401 && h("p", {}, h("a", { href: "./" }, "Log in again")),
      ),
    );
  if (isAway) parts.push(standbyNotice(context));
  else if (data !== null)
    parts.push(
      h(
        "div",
        { key: "page", class: shell.silence ? "page stale" : "page", inert: shell.silence !== null },
        page.view(context),
      ),
    );
  else if (!error && !shell.silence)
    parts.push(h("p", { key: "wait", class: "empty", role: "status" }, "Asking the member…"));
  return [
    h(
      "div",
      { class: "page-head", key: "head" },
      h("h1", { tabindex: -1 }, page.heading && !isAway ? page.heading(context) : title),
      data !== null && !isAway && page.actions ? h("div", { class: "actions" }, page.actions(context)) : null,
    ),
    parts,
  ];
}

const actions = {
  refresh: () => refresh(),
  pause: () => {
    shell.isPaused = !shell.isPaused;
    if (!shell.isPaused) refresh();
    draw();
  },
  interval: (seconds) => {
    shell.seconds = Number(seconds);
    kept.write("seconds", seconds);
    refresh();
  },
  theme: (theme) => {
    kept.write("theme", theme);
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    draw();
  },
  menu: () => {
    shell.isMenuOpen = !shell.isMenuOpen;
    draw();
  },
};

// ---------------------------------------------------------------- the browser

window.navigation?.addEventListener("navigate", (event) => {
  isTraversing = event.navigationType === "traverse";
});
window.addEventListener("popstate", follow);
document.addEventListener("visibilitychange", () => (document.hidden ? schedule() : refresh()));
window.addEventListener("online", () => refresh());
window.matchMedia("(max-width: 720px)").addEventListener("change", () => draw());
window.addEventListener("resize", () => context.page.needsState && draw());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && shell.isMenuOpen) actions.menu();
  if (event.target.closest?.("input, textarea, select")) return;
  if (event.key === "/") {
    event.preventDefault();
    const filter = document.querySelector("[data-filter]");
    filter?.focus();
    filter?.select();
  } else if (event.key === "r") refresh();
  else if (event.key === "p") actions.pause();
});
setInterval(() => shell.silence && !document.hidden && draw(), 1000); // the seconds up to the next try

draw();
refresh();
