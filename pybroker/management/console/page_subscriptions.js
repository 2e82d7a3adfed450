// Durable subscriptions.

import { get, path, remove } from "./api.js";
import { confirmByName } from "./dialog.js";
import { h } from "./dom.js";
import { counted, mono, name, number, visible } from "./format.js";
import { button, tag, to } from "./parts.js";
import { pageQuery, pagedTable } from "./table.js";

export const subscriptionsPage = {
  title: () => "Durable subscriptions",
  needsMaster: true,

  load: (context, signal) => get("subscriptions", pageQuery(context.route.query), signal),

  view(context) {
    const count = (id, label, hint) => ({ id, label, hint, sort: id, isNumber: true, cell: (row) => number(row[id]) });
    const columns = [
      {
        id: "name",
        label: "Subscription",
        sort: "name",
        isMain: true,
        cell: (row) =>
          h("a", { href: to("subscriptions", row.key, "messages"), title: "Browse its messages" }, name(row.name)),
      },
      {
        id: "client_id",
        label: "Client ID",
        sort: "client_id",
        cell: (row) =>
          row.is_active && row.connection_id
            ? h("a", { href: to("connections", row.connection_id) }, name(row.client_id))
            : name(row.client_id),
      },
      {
        id: "active",
        label: "State",
        sort: "is_active",
        cell: (row) => (row.is_active ? tag("active", "ok") : tag("offline")),
      },
      {
        id: "destination",
        label: "Topic",
        sort: "destination",
        cell: (row) => h("a", { href: to("topics", topicOf(row)) }, name(topicOf(row))),
      },
      { id: "selector", label: "Selector", cell: (row) => (row.selector ? mono(row.selector) : "–") },
      count("size", "Pending", "Messages that it has not acknowledged"),
      count("in_flight", "In flight"),
      count("enqueued", "Enqueued"),
      count("dispatched", "Dispatched"),
      count("dequeued", "Dequeued"),
      context.may("operator") && {
        id: "acts",
        label: h("span", { class: "unseen" }, "Actions"),
        class: "acts",
        cell: (row) =>
          button("Delete", () => deleteSubscription(context, row), {
            class: "danger small",
            disabled: row.is_active,
            title: row.is_active ? "It has a consumer" : null,
            "aria-label": `Delete ${visible(row.name)}`,
          }),
      },
    ].filter(Boolean);
    return pagedTable(context, {
      label: "Durable subscriptions",
      noun: "subscriptions",
      columns,
      answer: context.data,
      key: (row) => row.key,
      none: "There are no durable subscriptions.",
    });
  },
};

function topicOf({ destination }) {
  return destination.replace(/^topic:\/\//, "");
}

async function deleteSubscription(context, row) {
  const isDone = await confirmByName({
    title: "Delete durable subscription",
    object: row.name,
    label: "Delete",
    consequence: [
      "The subscription ",
      name(row.name),
      " of the client ",
      name(row.client_id),
      " is deleted, with its ",
      h("b", {}, counted(row.size, "pending message")),
      ".",
    ],
    act: (signal) => remove(`subscriptions/${path(row.key)}`, {}, signal),
  });
  if (isDone) context.refresh();
}
