/** The results: the answer, every document's, and the right answers by offset. */

import { element, make } from "./controls.js";

const percent = (share) => `${share > 0 && share < 0.005 ? "< 1" : Math.round(100 * share)}\u00a0%`;

/** @returns {string} a text with its line ends and tabs visible. */
export function visible(text) {
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥");
}

/** Show what the model expects after the text; `wanted` is the text of the answer, null where there is none. */
export function showAnswer({ top, right, answer, seconds, pairs, all, simd }, tokens, decode, wanted) {
  const verdict = element("verdict");
  const first = `“${decode([top[0].id]).trim() || visible(decode([top[0].id]))}”`;
  verdict.className = wanted === null ? "" : right ? "right" : "wrong";
  verdict.textContent = wanted === null ? `Next comes ${first}, with ${percent(top[0].share)}` :
    right ? `✓ Right: ${first}, with ${percent(top[0].share)}` :
    `✗ Wrong: ${first}, with ${percent(top[0].share)}; “${wanted.trim()}” has ${percent(answer.share)}`;
  element("continuations").replaceChildren(...top.map(({ id, share }) => {
    const bar = make("span", { className: "bar" }), mine = answer !== null && id === answer.id;
    bar.style.width = `${Math.max(0.5, 100 * share)}%`;
    const name = `${visible(decode([id])).replace(/^ /, "␣")}${mine ? " ✓" : ""}`;
    return make("li", { className: mine ? "right" : "" }, make("span", { className: "name", textContent: name }),
      make("span", {}, bar), make("span", { className: "share", textContent: percent(share) }));
  }));
  const scored = `${Math.round(pairs).toLocaleString("en")} pairs, ${percent(pairs / all)} of full attention's`;
  const time = `${seconds.toFixed(2)} s${simd ? "" : ", without WebAssembly"}`;
  element("cost").textContent = `${tokens} tokens read in ${time}; a head scores ${scored}`;
}

/** Make a button for each document; `choose` is called with its number. */
export function makeGrid(documents, decode, choose) {
  element("grid").replaceChildren(...documents.map(({ ids }, n) => make("li", {}, make("button", {
    type: "button", onclick: () => choose(n), title: decode(ids).trim() }))));
}

/** Show which document is asked for, and whether each was answered: true, false, or undefined while nobody knows. */
export function showGrid(results, documents, asked, decode) {
  buttons("grid").forEach((button, n) => {
    const result = results.get(n), name = decode([documents[n].ids[documents[n].at - 1]]).trim();
    button.className = result === undefined ? "" : result ? "right" : "wrong";
    const [sign, words] = result === undefined ? ["·", "not asked yet"] : result ? ["✓", "right"] : ["✗", "wrong"];
    button.textContent = `${sign} ${name}`;
    button.setAttribute("aria-label", `${name}: ${words}`);
    button.ariaCurrent = n === asked ? "true" : null;
  });
  const known = [...results.values()];
  element("every-count").textContent = `${known.filter(Boolean).length} of ${known.length} right` +
    (known.length < documents.length ? ` (${documents.length} documents)` : "");
}

/** Make a bar for each offset; `choose` is called with it. */
export function makeStrip(count, choose) {
  element("strip").replaceChildren(...Array.from({ length: count }, (_, n) => make("li", {},
    make("button", { type: "button", onclick: () => choose(n) }, make("span", { className: "bar" }),
      make("span", { className: "share" })),
    make("span", { className: "at", textContent: n, ariaHidden: "true" }))));
}

/** Show the share of right answers at each offset, of those of the chosen documents that are known. */
export function showStrip(results, chosen, offset) {
  buttons("strip").forEach((button, at) => {
    const known = chosen.filter((n) => results[at].has(n)), right = known.filter((n) => results[at].get(n)).length;
    const share = known.length ? Math.round((100 * right) / known.length) : 0;
    button.querySelector(".bar").style.height = `${share}%`;
    button.querySelector(".share").textContent = known.length ? share : "";
    button.className = known.length < chosen.length ? "partly" : "";
    button.ariaCurrent = at === offset ? "true" : null;
    button.setAttribute("aria-label", `${at} tokens before: ${right} of ${known.length} right` +
      (known.length < chosen.length ? `, ${chosen.length} will be asked for` : ""));
  });
}

/** Show how groups of g tokens cut the document that is asked for, and those beside it; nothing if g is 0. */
export function showCut(documents, asked, offset, group, decode) {
  let at = offset;
  const pieces = documents.flatMap(({ ids }, n) => ids.map((id) => ({ id, n, at: at++ })))
    .filter(({ n }) => Math.abs(n - asked) <= 1);
  element("cut").replaceChildren(...(group ? pieces : []).map((piece) => {
    const kinds = { odd: Math.floor(piece.at / group) % 2, first: piece.at % group === 0, asked: piece.n === asked };
    return make("span", { textContent: visible(decode([piece.id])),
      className: Object.keys(kinds).filter((kind) => kinds[kind]).join(" ") });
  }));
}

function buttons(id) {
  return [...element(id).querySelectorAll("button")];
}
