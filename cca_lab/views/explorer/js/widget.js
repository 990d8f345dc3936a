/** The explorer in Jupyter, for anywidget: a form above the view; a Python program answers. */

/** Sends changes to a program that answers one at a time: newer ones are joined, not queued. */
class Sender {
  /** @param {(message: {serial: number, changes: object}) => void} send */
  constructor(send) {
    Object.assign(this, { send, serial: 0, answered: 0, waiting: null });
  }

  /** Ask for changes; options are joined one by one. */
  ask(changes) {
    const before = this.waiting ?? {}, options = { ...before.options, ...changes.options };
    this.waiting = { ...before, ...changes, ...(Object.keys(options).length ? { options } : {}) };
    if (changes.attention !== undefined) {  // another mechanism has other options
      this.waiting.options = changes.options ?? {};
    }
    this.next();
  }

  /** Take note of an answer. */
  answer(serial) {
    this.answered = serial;
    this.next();
  }

  next() {
    if (this.waiting === null || this.answered < this.serial) return;
    const changes = this.waiting;
    this.waiting = null;
    this.serial += 1;
    this.send({ serial: this.serial, changes });
  }
}

// On the element itself: else JupyterLab takes its arrow keys as commands of the notebook.
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

class Form {
  /** @param {(changes: object) => void} ask is called with arguments of Explorer.change. */
  constructor(place, ask) {
    this.ask = ask;
    this.error = node("p", { class: "ex-message", role: "alert" });
    this.first = node("div", { class: "ex-controls" });
    this.sliders = node("div", { class: "ex-controls" });
    this.root = node("form", { class: "ex-form", submit: (event) => event.preventDefault() },
      this.first, this.sliders, this.error);
    this.fields = new Map();
    place.append(this.root);
  }

  /** Show the form of a program: `Explorer.form` in explorer.py. */
  draw(form) {
    this.error.textContent = form.error;
    this.error.hidden = !form.error;
    const counted = (total) =>
      Array.from({ length: total }, (_, n) => ({ label: String(n), value: n }));
    this.list(this.first, [
      { name: "attention", title: "mechanism", kind: "choice", value: form.attention,
        choices: form.mechanisms.map(({ name, title }) => ({ label: title, value: name })) },
      { name: "layer", kind: "choice", value: form.layer, choices: counted(form.layers) },
      { name: "head", kind: "choice", value: form.head, choices: counted(form.heads) },
    ], (name, value) => this.ask({ [name]: value }));
    this.list(this.sliders, form.options,
      (name, value) => this.ask({ options: { [name]: value } }));
  }

  /** Show controls in a place; those that are there stay, so that a slider can be dragged on. */
  list(place, controls, changed) {
    const shape = JSON.stringify(controls.map(({ name, kind, choices }) => [name, kind, choices]));
    if (this.fields.get(place)?.shape !== shape) {
      const made = controls.map((control) => field(control, changed));
      place.replaceChildren(...made.map(({ label }) => label));
      this.fields.set(place, { shape, made });
    }
    controls.forEach((control, n) => this.fields.get(place).made[n].show(control));
  }
}

/** Make one control: its label, and a function that shows a value and a range. */
function field({ name, title = name.replace(/_/g, " "), kind, choices }, changed) {
  if (kind === "choice") {
    const list = node("select", { ...OWN_KEYS,
      change: () => changed(name, choices[list.selectedIndex].value) },
      ...choices.map(({ label }) => node("option", {}, label)));
    return { label: node("label", { "data-name": name }, title, list), show: ({ value }) => {
      list.selectedIndex = choices.findIndex((choice) => choice.value === value);
    } };
  }
  const number = node("output", {}), slider = node("input", { ...OWN_KEYS, type: "range",
    input: () => {
      number.textContent = slider.value;
      changed(name, Number(slider.value));
    } });
  const words = node("span", {}, title, " ", number);
  return { label: node("label", { "data-name": name }, words, slider),
    show: ({ value, least, most, step }) => {
      Object.assign(slider, { min: least, max: most, step });
      if (document.activeElement !== slider || Number(slider.value) !== value) slider.value = value;
      number.textContent = String(Number(value.toFixed(4)));
    } };
}

/** Draw the widget; its traits are those of ExplorerWidget in widget.py. */
function renderWidget({ model, el }) {
  const sender = new Sender((message) => model.send(message)), place = node("div");
  const form = new Form(el, (changes) => sender.ask(changes));
  el.append(place);
  sender.serial = sender.answered = model.get("answered");
  const state = () =>
    ({ ...model.get("reading"), row: model.get("row"), overview: model.get("overview") });
  const view = render(place, state(), { onQuery: (query) => sender.ask({ query }),
    onHead: (layer, head) => sender.ask({ layer, head }) });
  const themed = () => { form.root.dataset.theme = place.firstChild.dataset.theme; };
  form.draw(model.get("form"));
  themed();

  let changed = new Set();  // traits of one message arrive one by one: all are drawn at once
  const traits = ["reading", "row", "overview", "form", "answered"];
  const listeners = traits.map((name) => [`change:${name}`, () => {
    if (!changed.size) queueMicrotask(draw);
    changed.add(name);
  }]);
  function draw() {
    const names = changed;
    changed = new Set();
    if (names.has("reading")) view.update(state());
    else {
      if (names.has("row")) view.update({ row: model.get("row") });
      if (names.has("overview")) view.update({ overview: model.get("overview") });
    }
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
