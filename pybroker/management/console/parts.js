// Parts that pages share: sections, facts, figures, states, buttons and errors.

import { h } from "./dom.js";
import { prose } from "./format.js";

/** The address of a page of the console, with the names that it has. */
export function to(...parts) {
  return `#/${parts.map((part) => encodeURIComponent(String(part).toWellFormed())).join("/")}`;
}

/** A section with a heading, and what can be done there. */
export function section(title, props, ...children) {
  const { actions = null, ...rest } = props;
  return h(
    "section",
    { ...rest, class: `section ${rest.class ?? ""}`.trim(), "aria-label": title },
    h("div", { class: "section-head" }, h("h2", {}, title), actions && h("div", { class: "actions" }, actions)),
    children,
  );
}

/** A list of names and values; those without a value are left out. */
export function facts(...pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "")
      .map(([term, value]) => h("div", { key: term }, h("dt", {}, term), h("dd", {}, value))),
  );
}

/** A figure: a large number with its name, and something below. */
export function figure(label, value, ...below) {
  return h(
    "div",
    { class: "figure", key: label },
    h("div", { class: "figure-label" }, label),
    h("div", { class: "figure-value" }, value),
    below,
  );
}

/** A state: its colour is one of `ok`, `warn`, `bad` and empty. */
export function tag(text, colour = "", title = null) {
  return h("span", { class: `tag ${colour}`.trim(), title }, text);
}

export function button(label, onclick, props = {}) {
  return h("button", { type: "button", onclick, ...props }, label);
}

/** An error, in the sentence that it has. */
export function failure(error) {
  return h("p", { class: "notice bad", role: "alert" }, sentence(error.message));
}

export function notice(colour, ...children) {
  return h("div", { class: `notice ${colour}`.trim() }, children);
}

export function empty(text) {
  return h("p", { class: "empty" }, text);
}

/** A text that begins with a capital and ends with a full stop. */
export function sentence(text) {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return prose(/[.!?…]$/.test(whole) ? whole : `${whole}.`);
}

/** A part of a whole, as a bar. */
export function meter(label, share, text) {
  const width = Math.max(0, Math.min(1, share || 0));
  const colour = width >= 0.9 ? "bad" : width >= 0.7 ? "warn" : "";
  return h(
    "div",
    { class: "meter", key: label },
    h("div", { class: "meter-text" }, h("span", {}, label), h("span", {}, text)),
    h(
      "div",
      {
        class: "meter-track",
        role: "meter",
        "aria-label": label,
        "aria-valuemin": 0,
        "aria-valuemax": 100,
        "aria-valuenow": Math.round(width * 100),
        "aria-valuetext": text,
      },
      h("div", { class: `meter-bar ${colour}`.trim(), style: { width: `${width * 100}%` } }),
    ),
  );
}

/** A field of a form, with its name above. */
export function field(label, control, hint = null) {
  return h("label", { class: "field", key: label }, h("span", {}, label), control, hint && h("small", {}, hint));
}

export function choice(value, choices, onchange, props = {}) {
  return h(
    "select",
    { ...props, value, onchange: (event) => onchange(event.target.value) },
    choices.map(([each, label]) => h("option", { value: each, key: each }, label)),
  );
}
