// The data files of the journal, with what keeps each of them, also on a standby, which reads the same files; and
// transactions that wait for a decision, which the master has.

import { ApiError, get, path, post } from "./api.js";
import { confirmCount } from "./dialog.js";
import { h } from "./dom.js";
import { bytes, counted, mono, name, number } from "./format.js";
import { masterText } from "./frame.js";
import { button, empty, failure, figure, notice, section, sentence, tag } from "./parts.js";
import { table } from "./table.js";

const REASONS = 4;
const PAGE_MAX = 1000;

export const journalPage = {
  title: () => "Journal",

  async load(context, signal) {
    const [journal, transactions] = await Promise.all([
      get("journal", {}, signal).catch(asRefusal), // it may have to be read first, and a database has none
      context.isMaster ? get("transactions", { page_size: PAGE_MAX }, signal) : null,
    ]);
    return { journal, transactions };
  },

  view(context) {
    const { journal, transactions } = context.data;
    return [
      !context.isMaster && notice("", h("b", {}, "This member is not the master."), " ", masterText(context.shell)),
      transactions?.count > 0 && doubt(context, transactions),
      h(
        "div",
        { class: "figures", key: "figures" },
        figure("Size", bytes(journal.bytes)),
        figure("Data files", number(journal.files?.length)),
        transactions &&
          figure("Transactions in doubt", transactions.count ? tag(number(transactions.count), "warn") : "0"),
      ),
      section("Data files", { key: "files" }, journal.error ? failure(journal.error) : fileTable(journal.files)),
    ];
  },
};

function asRefusal(error) {
  if (error instanceof ApiError) return { error };
  throw error;
}

function fileTable(files) {
  if (!files.length) return empty("This store has no data files.");
  const largest = Math.max(...files.map((each) => each.size), 1);
  const columns = [
    {
      id: "name",
      label: "File",
      isMain: true,
      cell: (each) => [
        mono(each.name),
        each.is_current && [" ", tag("current", "", "It is written to")],
        each.directory && h("div", { class: "hint" }, name(each.directory)),
      ],
    },
    { id: "size", label: "Size", isNumber: true, cell: (each) => bytes(each.size) },
    { id: "share", label: "", class: "share", cell: (each) => share(each.size / largest) },
    { id: "reasons", label: "What keeps it", class: "long", cell: reasons },
  ];
  return table("Data files", columns, files, { key: (each) => `${each.directory} ${each.name}` });
}

function share(part) {
  return h(
    "span",
    { class: "window-track wide", "aria-hidden": "true" },
    h("span", { class: "window-bar", style: { width: `${100 * part}%` } }),
  );
}

/** The reasons for a file, and what an operator can do about them. */
function reasons({ reasons: found, remedies = [], note }) {
  const list = (texts) =>
    h(
      "ul",
      { class: "reasons" },
      [...new Set(texts)].map((text) => h("li", { key: text }, sentence(text))),
    );
  const folded = (label, texts) =>
    texts.length > 0 && h("details", { key: label }, h("summary", {}, label), list(texts));
  return [
    found.length ? list(found.slice(0, REASONS)) : h("span", { class: "hint" }, "Nothing: it is deleted next."),
    folded(`${number(found.length - REASONS)} more`, found.slice(REASONS)),
    folded("Remedies", remedies),
    note && h("div", { class: "hint" }, sentence(note)),
  ];
}

function doubt(context, { items, count }) {
  const columns = [
    { id: "branch", label: "Branch", isMain: true, class: "long", cell: (each) => mono(each.branch) },
    { id: "user", label: "User", cell: (each) => name(each.user || "–") },
    { id: "sent", label: "Sent", isNumber: true, cell: (each) => number(each.sent) },
    { id: "acknowledged", label: "Acknowledged", isNumber: true, cell: (each) => number(each.acknowledged) },
    context.may("operator") && {
      id: "acts",
      label: h("span", { class: "unseen" }, "Actions"),
      class: "acts",
      cell: (each) => [
        button("Commit", () => decide(context, each, "commit"), { class: "small", key: "commit" }),
        button("Roll back", () => decide(context, each, "rollback"), { class: "danger small", key: "rollback" }),
      ],
    },
  ].filter(Boolean);
  return section(
    "Transactions in doubt",
    { key: "doubt" },
    notice(
      "warn",
      "These branches are prepared, and wait for their transaction manager. Decide here only if it is lost: it may decide otherwise for other resources.",
    ),
    table("Transactions in doubt", columns, items, { key: (each) => each.branch }),
    count > items.length && h("p", { class: "hint" }, `The first ${number(items.length)} of ${number(count)} are shown.`),
  );
}

async function decide(context, each, decision) {
  const isCommit = decision === "commit";
  const isDone = await confirmCount({
    title: isCommit ? "Commit transaction" : "Roll back transaction",
    label: isCommit ? "Commit" : "Roll back",
    consequence: [
      h("p", {}, mono(each.branch)),
      h(
        "p",
        {},
        h("b", {}, counted(each.sent, "message")),
        isCommit ? " that it has sent will be delivered, and " : " that it has sent will be dropped, and ",
        h("b", {}, counted(each.acknowledged, "message")),
        isCommit ? " that it has acknowledged will be removed." : " that it has acknowledged will be delivered again.",
      ),
    ],
    act: (signal) => post(`transactions/${path(each.branch)}/${decision}`, {}, signal),
  });
  if (isDone) context.refresh();
}
