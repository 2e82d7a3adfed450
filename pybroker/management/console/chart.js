// Lines of the last hour, drawn in SVG.

import { h } from "./dom.js";
import { dateTime } from "./format.js";

const WIDTH = 320;
const HEIGHT = 56;

/** A chart of one or two series, which are `{label, values: [number|null, …]}` at the times `atMs`. */
export function chart({ title, atMs, series, format, key = title }) {
  const known = series.flatMap(({ values }) => values).filter((value) => value !== null);
  const top = Math.max(...known, 0) || 1;
  const x = (index) => (atMs.length > 1 ? (index * WIDTH) / (atMs.length - 1) : WIDTH);
  const y = (value) => HEIGHT - 1 - (value / top) * (HEIGHT - 6);
  const describe = (index) =>
    series
      .map(({ label, values }) => `${label ? `${label} ` : ""}${values[index] === null ? "–" : format(values[index])}`)
      .join(" · ");
  const summary = known.length
    ? `at most ${format(Math.max(...known))}, now ${describe(atMs.length - 1)}`
    : "no values yet";
  const point = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    const index = Math.round(((event.clientX - left) / width) * (atMs.length - 1));
    const readout = event.currentTarget.parentElement.querySelector(".chart-readout");
    if (atMs[index] !== undefined) readout.textContent = `${dateTime(atMs[index]).slice(11)}  ${describe(index)}`;
  };
  const leave = (event) => {
    event.currentTarget.parentElement.querySelector(".chart-readout").textContent = "";
  };
  return h(
    "div",
    { class: "chart", key },
    h(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${title}, the last hour: ${summary}`,
        onpointermove: point,
        onpointerleave: leave,
      },
      h("path", { class: "chart-base", d: `M0 ${HEIGHT - 0.5}H${WIDTH}` }),
      series.map(({ values }, index) => line(values, x, y, index)),
    ),
    h("div", { class: "chart-readout", opaque: true, "aria-hidden": "true" }),
  );
}

function line(values, x, y, index) {
  const runs = [];
  values.forEach((value, at) => {
    if (value === null) return;
    const isNext = at > 0 && values[at - 1] !== null;
    if (isNext) runs.at(-1).push(at);
    else runs.push([at]);
  });
  const path = runs
    .map(
      (run) =>
        `M${run.map((at) => `${x(at).toFixed(1)} ${y(values[at]).toFixed(1)}`).join("L")}${run.length === 1 ? "h.1" : ""}`,
    )
    .join("");
  const area = runs
    .map(
      (run) =>
        `M${x(run[0]).toFixed(1)} ${HEIGHT}L${run.map((at) => `${x(at).toFixed(1)} ${y(values[at]).toFixed(1)}`).join("L")}V${HEIGHT}Z`,
    )
    .join("");
  return [
    index === 0 && h("path", { class: "chart-area", d: area, key: `area${index}` }),
    h("path", { class: index ? "chart-line second" : "chart-line", d: path, key: `line${index}` }),
  ];
}

/** The rates of a count that only grows; null where it began again. */
export function rates(points, column) {
  return points.map((point, index) => {
    if (index === 0) return null;
    const seconds = (point.at_ms - points[index - 1].at_ms) / 1000;
    const more = point[column] - points[index - 1][column];
    return seconds > 0 && more >= 0 ? more / seconds : null;
  });
}

/** The rates between two answers, for tables: counts by name, and when they came. */
export class Rates {
  constructor() {
    this.former = new Map();
    this.atMs = 0;
    this.found = new Map();
  }

  take(items, columns) {
    const atMs = performance.now();
    const seconds = (atMs - this.atMs) / 1000;
    const latest = new Map();
    const found = new Map();
    for (const item of items) {
      const former = this.former.get(item.name);
      latest.set(
        item.name,
        columns.map((column) => item[column]),
      );
      if (former)
        found.set(
          item.name,
          columns.map((column, index) => Math.max(0, (item[column] - former[index]) / seconds)),
        );
    }
    this.former = latest;
    this.atMs = atMs;
    this.found = found;
  }

  of(name, index) {
    return this.found.get(name)?.[index] ?? null;
  }
}
