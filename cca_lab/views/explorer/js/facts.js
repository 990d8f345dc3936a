/** What the row and the whole text lose and save against full attention, as large numbers. */

import { bytes, count, node, percent } from "./dom.js";

/** Write the facts of a state into a list. */
export function showFacts(list, { row, totals, columns }) {
  const { numbers, query, seen } = row;
  const pooled = seen.filter((column) => columns[column].tokens.length > 1).length;
  list.replaceChildren(
    fact("weight lost", percent(numbers.lost), "full attention's, on tokens in no seen column", numbers.lost),
    fact("weight moved", percent(numbers.distance), "total variation from full attention", numbers.distance),
    fact("tokens for 90 %", count(numbers.k90), `full attention needs ${count(numbers.k90Full)}`),
    fact("entropy", numbers.entropy.toFixed(2), `nats; full attention ${numbers.entropyFull.toFixed(2)}`),
    fact("columns read", count(seen.length), `of ${count(query + 1)} tokens${pooled ? `; ${pooled} pool several` : ""}`,
      seen.length / (query + 1)),
    saving("pairs", totals.pairs, totals.pairsFull, count, "whole text"),
    cacheFact(totals));
}

function cacheFact({ bytes: own, bytesFull, entries, entriesFull }) {
  if (entries === null) return fact("cache", "–", "none of its own: it decodes with full attention's");
  const known = own !== null && own !== undefined;
  return known ? saving("cache", own, bytesFull, bytes, "one layer") :
    saving("cache", entries, entriesFull, count, "entries");
}

/** @returns {HTMLElement} a cost beside full attention's. */
function saving(name, own, full, written, what) {
  const times = full > own ? `: ${(full / own).toFixed(1)} times less` : "";
  return fact(name, written(own), `${what}, of ${written(full)}${times}`, own / full);
}

/** @returns {HTMLElement} a name, a value, a remark, and a bar if there is a share from 0 to 1. */
function fact(name, value, remark, share = null) {
  return node("div", { class: "ex-fact", role: "listitem" }, node("span", {}, name), " ",
    node("strong", {}, value), " ", node("small", {}, remark), share === null ? null :
      node("i", { class: "ex-share", style: `--share: ${Math.min(1, share)}`, "aria-hidden": "true" }));
}
