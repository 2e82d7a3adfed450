// The body of a message: as text, as JSON that is laid out, and in hexadecimal.

import { h } from "./dom.js";
import { bytes, prose } from "./format.js";
import { button, empty, notice } from "./parts.js";

const SHOWN_MAX = 200_000; // characters: more would make the page slow
const HEX_BYTES_MAX = 16_384;
const ROW = 16;

export function bodyView(context, message) {
  const { body, body_type: type } = message;
  if (type === "none" || body === null || body === undefined) return empty("It has no body.");
  if (context.state.viewsOf !== message) Object.assign(context.state, { viewsOf: message, views: viewsOf(body, type) });
  const { views } = context.state;
  const present = views.find(([id]) => id === context.state.bodyView) ?? views[0];
  return [
    message.body_is_cut && notice("warn", "The body is cut: the message is too large to be shown whole."),
    h(
      "div",
      { class: "body-bar" },
      h(
        "div",
        { class: "switch", role: "group", "aria-label": "View of the body" },
        views.map(([id, label]) =>
          button(
            label,
            () => {
              context.state.bodyView = id;
              context.redraw();
            },
            { key: id, "aria-pressed": String(id === present[0]) },
          ),
        ),
      ),
      h("span", { class: "hint" }, `${type}, ${bytes(message.size)}`),
    ),
    h(
      "pre",
      {
        class: "body",
        tabindex: 0,
        "aria-label": "Body",
        dir: present[0] === "text" ? "auto" : "ltr",
        key: present[0],
      },
      present[2](),
    ),
  ];
}

/** The views that a body has, the best one first. */
function viewsOf(body, type) {
  if (type === "map" || type === "stream") return [["json", "JSON", () => cut(JSON.stringify(body, null, 2))]];
  const data = type === "text" ? new TextEncoder().encode(body) : decoded(body);
  const text = type === "text" ? body : textOf(data);
  const json = text === null ? null : laidOut(text);
  const found = [];
  if (json !== null) found.push(["json", "JSON", () => cut(json)]);
  if (text !== null) found.push(["text", "Text", () => cut(text)]);
  found.push(["hex", "Hex", () => hex(data)]);
  return found;
}

/** The text of a body of bytes in UTF-8, which may be cut; null if they are none. */
export function textOfBytes(base64, isCut) {
  return textOf(decoded(base64), isCut);
}

function decoded(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** The text that bytes are in UTF-8; null if they are none. Where they are cut, half a character may be at their end. */
function textOf(data, isCut = false) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: isCut });
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** JSON in lines; null if a text is none. Numbers stay as they are written, however long they are. */
function laidOut(text) {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const parts = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/gs) ?? [];
  let depth = 0;
  let written = "";
  parts.forEach((part, index) => {
    const line = () => `\n${"  ".repeat(depth)}`;
    if (part === "{" || part === "[") {
      depth += 1;
      written += part + (isEnd(parts[index + 1]) ? "" : line());
    } else if (isEnd(part)) {
      depth -= 1;
      written += (parts[index - 1] === "{" || parts[index - 1] === "[" ? "" : line()) + part;
    } else if (part === ",") written += part + line();
    else written += part === ":" ? ": " : part;
  });
  return written;
}

function isEnd(part) {
  return part === "}" || part === "]";
}

function cut(text) {
  return [
    prose(text.slice(0, SHOWN_MAX)),
    text.length > SHOWN_MAX &&
      h("span", { class: "hint" }, `\n… ${(text.length - SHOWN_MAX).toLocaleString("en")} characters more`),
  ];
}

function hex(data) {
  const rows = [];
  for (let at = 0; at < Math.min(data.length, HEX_BYTES_MAX); at += ROW) {
    const part = [...data.subarray(at, at + ROW)];
    const codes = part.map((byte) => byte.toString(16).padStart(2, "0"));
    const columns = `${codes.slice(0, 8).join(" ")}  ${codes.slice(8).join(" ")}`.padEnd(ROW * 3);
    const characters = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${columns}  ${characters}`);
  }
  if (data.length > HEX_BYTES_MAX) rows.push(`… ${bytes(data.length - HEX_BYTES_MAX)} more`);
  return rows.join("\n");
}
