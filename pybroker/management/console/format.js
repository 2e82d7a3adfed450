// Numbers with units, times, and names in which every character can be seen.

import { h } from "./dom.js";

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const HUNDREDTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SPACE = "\u202f"; // narrow, and no line ends there

let aheadMs = 0;

/** Take the time of an answer: the broker's clock counts, and the browser's may be wrong. */
export function syncClock(date) {
  const at = Date.parse(date ?? "");
  if (Number.isNaN(at)) return;
  const difference = at - Date.now();
  aheadMs = Math.abs(difference) > 2000 ? difference : 0;
}

export function now() {
  return Date.now() + aheadMs;
}

export function number(value) {
  return isKnown(value) ? WHOLE.format(value) : "–";
}

export function counted(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

export function bytes(value) {
  if (!isKnown(value)) return "–";
  let unit = 0;
  let rest = value;
  for (; rest >= 1024 && unit < UNITS.length - 1; unit += 1) rest /= 1024;
  return `${(unit === 0 || rest >= 100 ? WHOLE : TENTHS).format(rest)}${SPACE}${UNITS[unit]}`;
}

export function rate(value) {
  if (!isKnown(value)) return "–";
  return `${(value >= 100 ? WHOLE : value >= 10 ? TENTHS : HUNDREDTHS).format(value)}/s`;
}

export function percent(value) {
  return isKnown(value) ? `${TENTHS.format(value)}${SPACE}%` : "–";
}

/** A time span in its two largest units. */
export function duration(ms) {
  if (!isKnown(ms)) return "–";
  if (ms < 1) return `${HUNDREDTHS.format(ms)}${SPACE}ms`;
  if (ms < 1000) return `${WHOLE.format(ms)}${SPACE}ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${TENTHS.format(seconds)}${SPACE}s`;
  if (seconds < 60) return `${WHOLE.format(seconds)}${SPACE}s`;
  const whole = Math.floor(seconds);
  const parts = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const first = parts.findIndex(([size]) => whole >= size);
  const [size, unit] = parts[first];
  const text = `${WHOLE.format(Math.floor(whole / size))}${SPACE}${unit}`;
  const [smaller, smallerUnit] = parts[first + 1];
  const rest = Math.floor((whole % size) / smaller);
  return rest ? `${text} ${rest}${SPACE}${smallerUnit}` : text;
}

export function ago(atMs) {
  if (!isKnown(atMs) || !atMs) return "never";
  const ms = now() - atMs;
  return ms < 1000 ? "just now" : `${duration(Math.floor(ms / 1000) * 1000)} ago`;
}

/** Local time, as in logs. */
export function dateTime(atMs) {
  if (!isKnown(atMs) || !atMs) return "–";
  const at = new Date(atMs);
  if (Number.isNaN(at.getTime())) return String(atMs);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// ---------------------------------------------------------------- names

// Controls, formats such as those of direction and zero width, surrogates, blanks that are none, and fillers.
const HIDDEN =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2000-\u200a\u202f\u205f\u3000\u3164\ufe00-\ufe0f\uffa0\u00a0]/u;
const HIDDEN_PARTS = new RegExp(`(${HIDDEN.source})`, "u");
const HIDDEN_IN_TEXT =
  /[\p{Cs}\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/u;
const HIDDEN_IN_TEXT_PARTS = new RegExp(`(${HIDDEN_IN_TEXT.source})`, "u");

function code(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A name as text, with the codes of the characters that cannot be seen. */
export function visible(text) {
  return String(text)
    .split(HIDDEN_PARTS)
    .map((part) => (isHidden(part, HIDDEN) ? `‹${code(part)}›` : part))
    .join("");
}

/** A name, by itself whatever its direction of writing is, with the codes of the characters that cannot be seen. */
export function name(text, props = {}) {
  return h("bdi", { ...props, class: `name ${props.class ?? ""}`.trim() }, marked(text, HIDDEN, HIDDEN_PARTS));
}

/** The same in the type of programs: ids, addresses, selectors. */
export function mono(text) {
  return name(text, { class: "code" });
}

/** A long text, in which only characters of direction, of no width, and controls are shown by their codes. */
export function prose(text) {
  return marked(text, HIDDEN_IN_TEXT, HIDDEN_IN_TEXT_PARTS);
}

function marked(text, hidden, parts) {
  return String(text)
    .split(parts)
    .map((part) => (isHidden(part, hidden) ? h("span", { class: "hidden-character" }, code(part)) : part));
}

function isHidden(part, hidden) {
  return part.length > 0 && part.length <= 2 && hidden.test(part);
}
