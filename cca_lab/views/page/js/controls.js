/** What the reader sees and moves: the controls, the answer, every document, the offsets. */

const LABELS = {
  group: "g, tokens in a group", window: "s, nearest tokens that stay raw",
  pooling: "Weights in a group", gamma: "Share of tokens that stay raw",
  choose: "These are chosen in", block: "Tokens in a block", sinks: "First tokens",
  recent: "Nearest tokens", local: "Nearest tokens", global_tokens: "First tokens",
};
const WORDS = {
  prompt: "the whole prompt, as in the paper", blocks: "each block, which is causal",
  softmax: "softmax, as in the paper", mean: "equal",
};

/**
 * @typedef {object} Settings
 * @property {number} model its number.
 * @property {string} mechanism with its options.
 * @property {string} source "documents", or the reader's "own" text.
 * @property {number} kind of the documents, drawn with a seed, with `offset` tokens before them.
 * @property {number} asked number of the document that is asked for, from 0.
 */

/** @returns {HTMLElement} the element of an id. */
function element(id) {
  return document.getElementById(id);
}

/** Fill the lists of models, mechanisms and kinds of documents. */
function fill({ models, mechanisms, questions }) {
  const offer = (id, pairs) =>
    element(id).append(...pairs.map(([value, title]) => node("option", { value }, title)));
  offer("model", models.map(({ name, trained }, n) => [n, `${name} (trained with ${trained})`]));
  offer("mechanism", mechanisms.map(({ name, title }) => [name, title]));
  offer("kind", questions.kinds.map(({ title }, n) => [n, title]));
  element("offset").max = questions.offsets - 1;
}

/** The settings that buttons offer: a title, what to look for, and what it changes. */
function presets({ models, start }) {
  const list = [{ title: "Full attention", model: 0, mechanism: "full", options: {},
    hint: "Every row reads every token before it. Is any document out of reach?" }];
  const other = models.findIndex(({ trained }) => trained.startsWith("cca"));
  if (start.mechanism !== "full") {
    list.push({ title: "Swapped, not trained for it", model: 0, ...start,
      hint: "The same weights. Which documents are answered, and what do they have in common? " +
        "Let the window grow." });
  }
  if (other < 0 || start.mechanism !== "cca") return list;
  return [...list, { title: "Swapped and trained", model: other, ...start,
    hint: "Weights trained with these groups. Move the documents through the groups with " +
      "“Tokens before them”." },
  { title: "The same with groups twice as large", model: other, mechanism: "cca",
    options: { ...start.options, group: Math.min(64, 2 * start.options.group) },
    hint: "Weights trained with smaller groups. Now it matters where groups cut the documents: " +
      "compare the offsets." }];
}

/** Show settings in the controls; `count` is the number of documents. */
function show(settings, data, count) {
  for (const name of ["model", "mechanism", "kind", "offset", "own"]) {
    element(name).value = settings[name];
  }
  element("asked").max = count;
  element("asked").value = settings.asked + 1;
  document.querySelectorAll("[name=source]").forEach((radio) => {
    radio.checked = radio.value === settings.source;
  });
  const own = settings.source === "own";
  for (const id of ["documents-controls", "every", "offsets"]) element(id).hidden = own;
  element("own-controls").hidden = !own;
  element("look").classList.toggle("documents", !own);
  showOptions(settings, data);
  document.querySelectorAll(".slider").forEach((slider) => {
    slider.querySelector("output").value = slider.querySelector("input").value;
  });
}

/** Show a control for each option; those that are there stay, so that a drag goes on. */
function showOptions({ mechanism, options }, { mechanisms }) {
  const { options: list, paper } = mechanisms.find(({ name }) => name === mechanism);
  const place = element("options");
  if (place.dataset.of !== mechanism) {
    place.replaceChildren(...list.flatMap(({ name, control }) => {
      const id = `option-${name}`, label = node("label", { for: id }, LABELS[name]);
      return [label, typeof control[0] === "string" ? chooser(id, control) : slider(id, control)];
    }));
    place.dataset.of = mechanism;
    element("paper").textContent = paper;
  }
  for (const { name } of list) element(`option-${name}`).value = options[name];
}

function chooser(id, values) {
  return node("select", { id }, ...values.map((value) => node("option", { value }, WORDS[value])));
}

function slider(id, [min, max, step]) {
  return node("span", { class: "slider" }, node("input", { id, type: "range", min, max, step }),
    node("output", { for: id }));
}

/** @returns {Settings} what the controls show, with the options that each mechanism had last. */
function read(settings, data, remembered) {
  const value = (id) => element(id).value;
  const mechanism = value("mechanism");
  if (mechanism === settings.mechanism) {
    for (const { name, control } of data.mechanisms.find((one) => one.name === mechanism).options) {
      const chosen = value(`option-${name}`);
      remembered[mechanism][name] = typeof control[0] === "string" ? chosen : Number(chosen);
    }
  }
  return { ...settings, mechanism, options: { ...remembered[mechanism] }, own: value("own"),
    model: Number(value("model")), kind: Number(value("kind")), offset: Number(value("offset")),
    asked: Number(value("asked")) - 1,
    source: document.querySelector("[name=source]:checked").value };
}

// ---------------------------------------------------------------- results

const rounded = (share) => `${share > 0 && share < 0.005 ? "< 1" : Math.round(100 * share)}\u00a0%`;

/** Show what the model expects after the text; `wanted` is the text of the answer, null where there
 * is none. */
function showAnswer({ top, right, answer, seconds, pairs, all }, tokens, decode, wanted) {
  const verdict = element("verdict");
  const first = `“${decode([top[0].id]).trim() || signed(decode([top[0].id]))}”`;
  verdict.className = wanted === null ? "" : right ? "right" : "wrong";
  verdict.textContent = wanted === null ? `Next comes ${first}, with ${rounded(top[0].share)}` :
    right ? `✓ Right: ${first}, with ${rounded(top[0].share)}` :
    `✗ Wrong: ${first}, with ${rounded(top[0].share)}; ` +
      `“${wanted.trim()}” has ${rounded(answer.share)}`;
  element("continuations").replaceChildren(...top.map(({ id, share }) => {
    const bar = node("span", { class: "bar" }), mine = answer !== null && id === answer.id;
    bar.style.width = `${Math.max(0.5, 100 * share)}%`;
    const name = `${signed(decode([id])).replace(/^ /, "␣")}${mine ? " ✓" : ""}`;
    return node("li", { class: mine ? "right" : "" }, node("span", { class: "name" }, name),
      node("span", {}, bar), node("span", { class: "share" }, rounded(share)));
  }));
  const scored =
    `${Math.round(pairs).toLocaleString("en")} pairs, ${rounded(pairs / all)} of full attention's`;
  const time = `${tokens} tokens read in ${seconds.toFixed(2)} s`;
  element("cost").textContent = `${time}; a head scores ${scored}`;
}

/** Make a button for each document; `choose` is called with its number. */
function makeGrid(documents, decode, choose) {
  element("grid").replaceChildren(...documents.map(({ ids }, n) => node("li", {},
    node("button", { type: "button", click: () => choose(n), title: decode(ids).trim() }))));
}

/** Show which document is asked for, and whether each was answered, as far as it is known. */
function showGrid(results, documents, asked, decode) {
  buttons("grid").forEach((button, n) => {
    const result = results.get(n), name = decode([documents[n].ids[documents[n].at - 1]]).trim();
    button.className = result === undefined ? "" : result ? "right" : "wrong";
    const [sign, words] = result === undefined ? ["·", "not asked yet"] :
      result ? ["✓", "right"] : ["✗", "wrong"];
    button.textContent = `${sign} ${name}`;
    button.setAttribute("aria-label", `${name}: ${words}`);
    button.ariaCurrent = n === asked ? "true" : null;
  });
  const known = [...results.values()];
  element("every-count").textContent = `${known.filter(Boolean).length} of ${known.length} right` +
    (known.length < documents.length ? ` (${documents.length} documents)` : "");
}

/** Make a bar for each offset; `choose` is called with it. */
function makeStrip(count, choose) {
  element("strip").replaceChildren(...range(0, count).map((n) => node("li", {},
    node("button", { type: "button", click: () => choose(n) },
      node("span", { class: "bar" }), node("span", { class: "share" })),
    node("span", { class: "at", "aria-hidden": "true" }, String(n)))));
}

/** Show the share of right answers at each offset, of the chosen documents that are known. */
function showStrip(results, chosen, offset) {
  buttons("strip").forEach((button, at) => {
    const known = chosen.filter((n) => results[at].has(n));
    const right = known.filter((n) => results[at].get(n)).length;
    const share = known.length ? Math.round((100 * right) / known.length) : 0;
    button.querySelector(".bar").style.height = `${share}%`;
    button.querySelector(".share").textContent = known.length ? share : "";
    button.className = known.length < chosen.length ? "partly" : "";
    button.ariaCurrent = at === offset ? "true" : null;
    button.setAttribute("aria-label", `${at} tokens before: ${right} of ${known.length} right` +
      (known.length < chosen.length ? `, ${chosen.length} will be asked for` : ""));
  });
}

/** Show how groups of g tokens cut the document that is asked for and its neighbours; not for 0. */
function showCut(documents, asked, offset, group, decode) {
  let at = offset;
  const pieces = documents.flatMap(({ ids }, n) => ids.map((id) => ({ id, n, at: at++ })))
    .filter(({ n }) => Math.abs(n - asked) <= 1);
  element("cut").replaceChildren(...(group ? pieces : []).map((piece) => {
    const kinds = { odd: Math.floor(piece.at / group) % 2, first: piece.at % group === 0,
      asked: piece.n === asked };
    const names = Object.keys(kinds).filter((kind) => kinds[kind]).join(" ");
    return node("span", { class: names }, signed(decode([piece.id])));
  }));
}

function buttons(id) {
  return [...element(id).querySelectorAll("button")];
}
