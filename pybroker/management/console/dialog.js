// Dialogs. Escape closes them, and what is done to the broker is done only from here.

import { h, patch } from "./dom.js";
import { visible } from "./format.js";
import { failure } from "./parts.js";

/** A dialog that is open: `view` describes its content, again after each `redraw`.
 *
 *  `run` does something that takes its time: it can be cancelled, says how far it is, and its error is shown. */
class Dialog {
  constructor(title, view) {
    this.title = title;
    this.view = view;
    this.error = null;
    this.running = null;
    this.progress = null;
    this.element = document.createElement("dialog");
    this.element.setAttribute("aria-labelledby", "dialog-title");
    this.element.addEventListener("cancel", (event) => {
      if (!this.running) return;
      event.preventDefault();
      this.running.abort();
    });
    this.closed = new Promise((resolve) => {
      this.element.addEventListener("close", () => {
        this.running?.abort();
        this.element.remove();
        resolve(this.result);
      });
    });
  }

  open() {
    document.body.append(this.element);
    this.redraw();
    this.element.showModal();
    this.element.querySelector("[data-first]")?.focus();
    return this.closed;
  }

  close(result) {
    this.result = result;
    this.element.close();
  }

  redraw() {
    patch(
      this.element,
      h("h2", { id: "dialog-title" }, this.title),
      h("div", { class: "dialog-body" }, this.view(this)),
      this.error && failure(this.error),
    );
  }

  async run(work) {
    if (this.running) return undefined;
    this.running = new AbortController();
    this.error = null;
    this.progress = null;
    this.redraw();
    try {
      return await work(this.running.signal, (progress) => {
        this.progress = progress;
        this.redraw();
      });
    } catch (error) {
      this.error = this.running?.signal.aborted ? new Error("cancelled: what was done up to then is done") : error;
      return undefined;
    } finally {
      this.running = null;
      if (this.element.isConnected) this.redraw();
    }
  }
}

/** Open a dialog; return what it is closed with. */
export function openDialog(title, view) {
  return new Dialog(title, view).open();
}

/** The row of buttons at the end of a dialog. `submit` is the last one. */
export function buttons(dialog, submit, { label, isDanger = false, isReady = true }) {
  return h(
    "div",
    { class: "dialog-buttons" },
    h(
      "button",
      { type: "button", onclick: () => (dialog.running ? dialog.running.abort() : dialog.close()) },
      "Cancel",
    ),
    h(
      "button",
      {
        type: "submit",
        class: isDanger ? "danger" : "primary",
        disabled: !isReady || dialog.running !== null,
        onclick: submit,
      },
      dialog.running ? "Working…" : label,
    ),
  );
}

/** A form that has the button of `submit` pressed by the key Enter. */
export function form(...children) {
  return h("form", { onsubmit: (event) => event.preventDefault() }, children);
}

/** Ask for something that cannot be undone: the object's name has to be typed.
 *
 *  `act(signal, onProgress)` does it; returns True if it was done. */
export function confirmByName({ title, object, consequence, label, act, extra = () => null }) {
  const wanted = visible(object);
  let typed = "";
  return openDialog(title, (dialog) => {
    const isRight = typed === wanted || typed === object;
    const submit = async () => {
      if (isRight && (await dialog.run(async (...how) => [await act(...how)]))) dialog.close(true);
    };
    return form(
      h("p", {}, typeof consequence === "function" ? consequence() : consequence),
      extra(dialog),
      h(
        "label",
        { class: "field" },
        h("span", {}, "Type ", h("bdi", { class: "code name" }, wanted), " to confirm"),
        h("input", {
          "data-first": true,
          class: "code",
          autocomplete: "off",
          spellcheck: "false",
          value: typed,
          oninput: (event) => {
            typed = event.target.value;
            dialog.redraw();
          },
        }),
      ),
      buttons(dialog, submit, { label, isDanger: true, isReady: isRight }),
    );
  });
}

/** Ask for something of which the numbers are shown. */
export function confirmCount({ title, consequence, label, act, isDanger = true }) {
  return openDialog(title, (dialog) => {
    const submit = async () => {
      if (await dialog.run(async (signal) => [await act(signal)])) dialog.close(true);
    };
    return form(h("div", {}, consequence), buttons(dialog, submit, { label, isDanger }));
  });
}
