/** The controls: made from what the page knows, read into settings, and set from them. */

export const LABELS = {
  group: "g, tokens in a group", window: "s, nearest tokens that stay raw", pooling: "Weights in a group",
  gamma: "Share of tokens that stay raw", choose: "These are chosen in", block: "Tokens in a block",
  sinks: "First tokens", recent: "Nearest tokens", local: "Nearest tokens", global_tokens: "First tokens",
};
const WORDS = {
  prompt: "the whole prompt, as in the paper", blocks: "each block, which is causal",
  softmax: "softmax, as in the paper", mean: "equal",
};

/**
 * @typedef {object} Settings
 * @property {number} model number of the model.
 * @property {string} mechanism
 * @property {object} options of the mechanism.
 * @property {string} source "documents" or "own".
 * @property {number} kind of the documents.
 * @property {number} offset tokens before the documents.
 * @property {number} asked number of the document, from 0.
 * @property {number} seed of the documents.
 * @property {string} own the reader's text.
 */

/** @returns {HTMLElement} the element of an id. */
export function element(id) {
  return document.getElementById(id);
}

/** Make an element with properties, attributes whose names have a hyphen, and children. */
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

/** Fill the lists of models, mechanisms and kinds of documents. */
export function fill({ models, mechanisms, questions }) {
  const offer = (id, pairs) => element(id).append(...pairs.map(([value, textContent]) =>
    make("option", { value, textContent })));
  offer("model", models.map(({ name, trained }, n) => [n, `${name} (trained with ${trained})`]));
  offer("mechanism", mechanisms.map(({ name, title }) => [name, title]));
  offer("kind", questions.kinds.map(({ title }, n) => [n, title]));
  element("offset").max = questions.offsets - 1;
}

/** The settings that buttons offer: a title, what to look for, and what it changes. */
export function presets({ models, start }) {
  const list = [{ title: "Full attention", model: 0, mechanism: "full", options: {},
    hint: "Every row reads every token before it. Is any document out of reach?" }];
  const other = models.findIndex(({ trained }) => trained.startsWith("cca"));
  if (start.mechanism !== "full") {
    list.push({ title: "Swapped, not trained for it", model: 0, ...start,
      hint: "The same weights. Which documents are answered, and what do they have in common? Let the window grow." });
  }
  if (other < 0 || start.mechanism !== "cca") return list;
  return [...list, { title: "Swapped and trained", model: other, ...start,
    hint: "Weights trained with these groups. Move the documents through the groups with “Tokens before them”." },
  { title: "The same with groups twice as large", model: other, mechanism: "cca",
    options: { ...start.options, group: Math.min(64, 2 * start.options.group) },
    hint: "Weights trained with smaller groups. Now it matters where groups cut the documents: compare the offsets." }];
}

/** Show settings in the controls; `count` is the number of documents. */
export function show(settings, data, count) {
  for (const name of ["model", "mechanism", "kind", "offset", "own"]) element(name).value = settings[name];
  element("asked").max = count;
  element("asked").value = settings.asked + 1;
  document.querySelectorAll("[name=source]").forEach((radio) => { radio.checked = radio.value === settings.source; });
  const own = settings.source === "own";
  for (const id of ["documents-controls", "every", "offsets"]) element(id).hidden = own;
  element("own-controls").hidden = !own;
  element("look").classList.toggle("documents", !own);
  showOptions(settings, data);
  document.querySelectorAll(".slider").forEach((slider) => {
    slider.querySelector("output").value = slider.querySelector("input").value;
  });
}

/** Show a control for each option of the mechanism; those that are there stay, so that a drag goes on. */
function showOptions({ mechanism, options }, { mechanisms }) {
  const { options: list, paper } = mechanisms.find(({ name }) => name === mechanism), place = element("options");
  if (place.dataset.of !== mechanism) {
    place.replaceChildren(...list.flatMap(({ name, control }) => {
      const id = `option-${name}`, label = make("label", { htmlFor: id, textContent: LABELS[name] });
      return [label, typeof control[0] === "string" ? chooser(id, control) : slider(id, control)];
    }));
    place.dataset.of = mechanism;
    element("paper").textContent = paper;
  }
  for (const { name } of list) element(`option-${name}`).value = options[name];
}

function chooser(id, values) {
  return make("select", { id }, ...values.map((value) => make("option", { value, textContent: WORDS[value] })));
}

function slider(id, [min, max, step]) {
  return make("span", { className: "slider" }, make("input", { id, type: "range", min, max, step }),
    make("output", { htmlFor: id }));
}

/** @returns {Settings} the settings that the controls show, with the options that each mechanism had last. */
export function read(settings, data, remembered) {
  const value = (id) => element(id).value;
  const mechanism = value("mechanism");
  if (mechanism === settings.mechanism) {
    for (const { name, control } of data.mechanisms.find((one) => one.name === mechanism).options) {
      const chosen = value(`option-${name}`);
      remembered[mechanism][name] = typeof control[0] === "string" ? chosen : Number(chosen);
    }
  }
  return { ...settings, mechanism, options: { ...remembered[mechanism] }, model: Number(value("model")),
    kind: Number(value("kind")), offset: Number(value("offset")), asked: Number(value("asked")) - 1, own: value("own"),
    source: document.querySelector("[name=source]:checked").value };
}
