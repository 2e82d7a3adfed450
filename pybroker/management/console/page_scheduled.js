// Messages that wait for their time.

import { get, path, remove } from "./api.js";
import { confirmCount } from "./dialog.js";
import { h } from "./dom.js";
import { bytes, dateTime, duration, mono, name, now, number } from "./format.js";
import { button, choice, empty, tag } from "./parts.js";
import { table } from "./table.js";

const SIZES = [
  ["50", "50 a page"],
  ["100", "100 a page"],
  ["250", "250 a page"],
];

/** The cursors of the pages before this one. */
let trail = [];

export const scheduledPage = {
  title: () => "Scheduled messages",
  needsMaster: true,

  load: (context, signal) =>
    get("jobs", { after: context.route.query.get("after"), page_size: pageSize(context) }, signal),

  view(context) {
    const { items, count, cursor } = context.data;
    return [
      h(
        "div",
        { class: "toolbar", key: "toolbar" },
        h("span", { class: "count", role: "status" }, `${number(count)} scheduled`),
        h("span", { class: "spring" }),
        choice(pageSize(context), SIZES, (size) => context.change({ page_size: size, after: null }), {
          "aria-label": "Rows of a page",
        }),
      ),
      items.length
        ? h("div", { key: "jobs" }, jobTable(context, items))
        : h("div", { key: "none" }, empty("No messages are scheduled.")),
      pager(context, items, cursor),
    ];
  },
};

function pageSize(context) {
  return context.route.query.get("page_size") ?? "50";
}

function jobTable(context, jobs) {
  const columns = [
    {
      id: "next",
      label: "Next",
      isMain: true,
      class: "time",
      cell: (job) => [
        dateTime(job.next_time_ms),
        h(
          "span",
          { class: "hint" },
          job.next_time_ms > now()
            ? ` in ${duration(Math.floor((job.next_time_ms - now()) / 1000) * 1000 || 1000)}`
            : " due",
        ),
      ],
    },
    { id: "destination", label: "Destination", cell: (job) => (job.destination ? name(job.destination) : "–") },
    { id: "cron", label: "Cron", class: "time", cell: (job) => (job.cron ? mono(job.cron) : "–") },
    { id: "delay", label: "Delay", isNumber: true, cell: (job) => (job.delay_ms ? duration(job.delay_ms) : "–") },
    { id: "period", label: "Period", isNumber: true, cell: (job) => (job.period_ms ? duration(job.period_ms) : "–") },
    {
      id: "repeat",
      label: "Repeat",
      isNumber: true,
      cell: (job) => (job.repeat < 0 ? "for ever" : number(job.repeat)),
    },
    { id: "runs", label: "Runs", isNumber: true, cell: (job) => number(job.run_count) },
    { id: "size", label: "Size", isNumber: true, cell: (job) => bytes(job.size) },
    { id: "job", label: "Job ID", class: "long", cell: (job) => mono(job.job_id) },
    context.may("operator") && {
      id: "acts",
      label: h("span", { class: "unseen" }, "Actions"),
      class: "acts",
      cell: (job) => button("Remove", () => removeJob(context, job), { class: "danger small" }),
    },
  ].filter(Boolean);
  return table("Scheduled messages", columns, jobs, { key: (job) => `${job.job_id} ${job.next_time_ms}` });
}

function pager(context, jobs, cursor) {
  const after = context.route.query.get("after");
  if (!after && !cursor) return null;
  if (!after) trail = [];
  return h(
    "nav",
    { class: "pager", key: "pager", "aria-label": "Pages" },
    button("‹ Previous", () => context.change({ after: trail.pop() ?? null }), { disabled: !after }),
    h("span", {}, `${number(jobs.length)} of this page`),
    button("Next ›", () => (trail.push(after), context.change({ after: cursor })), { disabled: !cursor }),
  );
}

async function removeJob(context, job) {
  const isRepeated = job.cron || job.repeat !== 0;
  const isDone = await confirmCount({
    title: "Remove scheduled message",
    label: "Remove 1 message",
    consequence: [
      h(
        "p",
        {},
        h("b", {}, "1 scheduled message"),
        " for ",
        job.destination ? name(job.destination) : "an unknown destination",
        ` is removed, which is due at ${dateTime(job.next_time_ms)}`,
        isRepeated ? ", and all its repetitions" : "",
        ".",
      ),
      h("p", {}, tag("job"), " ", mono(job.job_id)),
    ],
    act: (signal) => remove(`jobs/${path(job.job_id)}`, { next_time_ms: job.next_time_ms }, signal),
  });
  if (isDone) context.refresh();
}
