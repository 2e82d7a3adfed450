// Tables, and pages of them that the member filters, sorts and cuts.

import { h } from "./dom.js";
import { counted, number } from "./format.js";
import { button, choice, empty } from "./parts.js";

export const PAGE_SIZES = [25, 50, 100, 250];
const PAGE_SIZE = 50;
const TYPING_MS = 200;

/** A table. Columns have `id`, `label` and `cell(row)`; `isNumber`; `isMain`, for the one that names the row; `hint`;
 *  and `sort`, the name that REST has for the order by it.
 *
 *  On a narrow screen each row is a card, where cells have their labels. */
export function table(
  label,
  columns,
  rows,
  { key, sort = "", isDescending = false, onSort = null, rowClass = () => "" },
) {
  const head = columns.map((column) => {
    const isSorted = column.sort !== undefined && column.sort === sort;
    const order = isSorted ? (isDescending ? "descending" : "ascending") : null;
    const props = {
      key: column.id,
      role: "columnheader",
      scope: "col",
      class: kind(column),
      title: column.hint,
      "aria-sort": order,
    };
    if (!onSort || column.sort === undefined) return h("th", props, column.label);
    const mark =
      isSorted && h("span", { key: "mark", class: "sort-mark", "aria-hidden": "true" }, isDescending ? "↓" : "↑");
    return h(
      "th",
      props,
      button(column.isNumber ? [mark, column.label] : [column.label, mark], () => onSort(column, isSorted), {
        class: "sort",
      }),
    );
  });
  return h(
    "div",
    { class: "table-frame" },
    h(
      "table",
      { role: "table", "aria-label": label },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      h(
        "tbody",
        { role: "rowgroup" },
        rows.map((row) =>
          h(
            "tr",
            { role: "row", key: key(row), class: rowClass(row) },
            columns.map((column) =>
              h(
                "td",
                { key: column.id, role: "cell", class: kind(column), "data-label": textOf(column.label) },
                column.cell(row),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

function kind(column) {
  return [column.isNumber && "number", column.isMain && "main", column.class].filter(Boolean).join(" ") || null;
}

function textOf(label) {
  return typeof label === "string" ? label : "";
}

// ---------------------------------------------------------------- pages

/** The query of REST for the page that an address asks for. Only the lists of queues and topics have filters: REST
 *  refuses a parameter that a list does not have. */
export function pageQuery(query, defaults = {}, { hasFilter = false } = {}) {
  return {
    page: query.get("page") ?? 1,
    page_size: query.get("page_size") ?? PAGE_SIZE,
    sort: query.get("sort") ?? defaults.sort,
    order: query.get("sort") ? query.get("order") : defaults.order,
    name: query.get("name"),
    ...(hasFilter && { filter: query.get("filter") }),
  };
}

/** A page of rows, with the fields that filter it. `context` is that of the page (see `main.js`). */
export function pagedTable(
  context,
  { label, noun, columns, answer, key, defaults = {}, filters = [], filterHint = "Filter by name", rowClass, none },
) {
  const { query } = context.route;
  const asked = pageQuery(query, defaults);
  const isDescending = asked.order === "desc";
  const change = (values, options) => context.change({ page: null, ...values }, options);
  const onSort = (column, isSorted) => {
    const order = isSorted ? (isDescending ? "asc" : "desc") : column.isNumber ? "desc" : "asc";
    change({ sort: column.sort, order });
  };
  const rows = answer?.items ?? [];
  return [
    h(
      "div",
      { class: "toolbar", key: "toolbar" },
      filterField(context, filterHint, query.get("name") ?? "", (value) => change({ name: value }, { replaces: true })),
      filters.length > 0 &&
        choice(query.get("filter") ?? "", filters, (value) => change({ filter: value }), {
          "aria-label": `Which ${noun}`,
        }),
      h("span", { class: "spring" }),
      answer && h("span", { class: "count", role: "status" }, counted(answer.count, noun.slice(0, -1), noun)),
    ),
    answer && rows.length === 0
      ? h("div", { key: "none" }, empty(query.get("name") || query.get("filter") ? `None of the ${noun} match.` : none))
      : h(
          "div",
          { key: "rows", class: answer ? null : "waiting" },
          table(label, columns, rows, { key, sort: asked.sort, isDescending, onSort, rowClass }),
        ),
    answer && answer.count > Math.min(...PAGE_SIZES) && pager(context, answer),
  ];
}

/** The field that the key / leads to. What is typed is asked for after a moment. */
export function filterField(context, hint, value, onvalue, { isWide = false } = {}) {
  return h("input", {
    key: "filter",
    type: "search",
    class: isWide ? "filter wide" : "filter",
    value,
    placeholder: hint,
    title: "Press / to come here",
    "aria-label": hint,
    "data-filter": true,
    spellcheck: "false",
    oninput: (event) => {
      const text = event.target.value;
      clearTimeout(context.state.typing);
      context.state.typing = setTimeout(() => onvalue(text), TYPING_MS);
    },
  });
}

function pager(context, answer) {
  const last = Math.max(1, Math.ceil(answer.count / answer.page_size));
  const first = (answer.page - 1) * answer.page_size + 1;
  const go = (page) => () => context.change({ page: page === 1 ? null : page });
  return h(
    "nav",
    { class: "pager", "aria-label": "Pages", key: "pager" },
    button("‹ Previous", go(answer.page - 1), { disabled: answer.page <= 1 }),
    h(
      "span",
      {},
      `${number(first)}–${number(Math.min(answer.count, first + answer.page_size - 1))} of ${number(answer.count)}`,
    ),
    button("Next ›", go(answer.page + 1), { disabled: answer.page >= last }),
    choice(
      String(answer.page_size),
      PAGE_SIZES.map((size) => [String(size), `${size} a page`]),
      (size) => context.change({ page: null, page_size: size }),
      { "aria-label": "Rows of a page" },
    ),
  );
}
