/** The explorer in Jupyter, for anywidget: the form above the view, and a Python program that answers. */

import { Form } from "./form.js";
import { Sender } from "./sender.js";
import { render as renderView } from "./view.js";

/** Draw the widget; its traits are those of ExplorerWidget in widget.py. */
export function render({ model, el }) {
  const sender = new Sender((message) => model.send(message)), place = document.createElement("div");
  const form = new Form(el, (changes) => sender.ask(changes));
  el.append(place);
  sender.serial = sender.answered = model.get("answered");
  const state = () => ({ ...model.get("reading"), row: model.get("row"), overview: model.get("overview") });
  const view = renderView(place, state(), { onQuery: (query) => sender.ask({ query }),
    onHead: (layer, head) => sender.ask({ layer, head }) });
  const themed = () => { form.root.dataset.theme = place.firstChild.dataset.theme; };
  form.draw(model.get("form"));
  themed();

  let changed = new Set();  // traits of one message arrive one by one: draw once, when all are there
  const listeners = ["reading", "row", "overview", "form", "answered"].map((name) => [`change:${name}`, () => {
    if (!changed.size) queueMicrotask(draw);
    changed.add(name);
  }]);
  function draw() {
    const names = changed;
    changed = new Set();
    if (names.has("reading")) view.update(state());
    else if (names.has("row")) view.update({ row: model.get("row") });
    if (names.has("overview") && !names.has("reading")) view.update({ overview: model.get("overview") });
    if (names.has("form")) form.draw(model.get("form"));
    themed();
    if (names.has("answered")) sender.answer(model.get("answered"));
  }
  listeners.forEach(([event, listener]) => model.on(event, listener));
  return () => {
    listeners.forEach(([event, listener]) => model.off(event, listener));
    view.destroy();
  };
}
