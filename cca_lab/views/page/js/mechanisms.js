/**
 * The mechanisms: how each pools tokens into columns, and which intervals of columns a row sees.
 *
 * Each function takes one head and the options, and returns `Columns` (see columns.js). The package's own classes, of
 * the same names, say which paper each is from and what differs from it.
 */

import { Pooling, phi, range, table } from "./columns.js";
import { dga } from "./dga.js";

/**
 * @typedef {object} Head what a mechanism knows of one head of one layer.
 * @property {Float32Array} q queries, (L, D).
 * @property {Float32Array} k keys, (L, D).
 * @property {number} length L.
 * @property {number} dim D.
 * @property {number} scale factor on the logits.
 * @property {number} index the number of the head, from 0.
 * @property {number} heads how many heads the layer has.
 * @property {Map<number, any>} known what was computed from the first n tokens, by n: they do not change.
 */

/** The name of each mechanism and its columns. */
export const MECHANISMS = {
  full, cca, mean_pooling, random_tokens, streaming_llm, lm_infinite, a_shape, longlora, dga,
};

/** Full attention: row i sees the tokens [0, i]. */
function full({ length }) {
  return { pooling: null, each: 1, intervals: table(length, (i) => [[0, i + 1]]) };
}

/** CCA-Attention: each group older than the window is one core, pooled with the query of the group's last token. */
function cca(head, { group, window, pooling }) {
  const P = new Pooling();
  for (let p = 0; p < coreCount(head.length, group, window); p++) {
    const members = range(p * group, p * group + group);
    P.column("core", members, pooling === "mean" ? members.map(() => 1 / group) : phi(head, members));
  }
  return withRaw(P, head.length, group, window);
}

/** Mean pooling: CCA with the plain mean of each group. */
function mean_pooling(head, { group, window }) {
  return cca(head, { group, window, pooling: "mean" });
}

/** Random tokens: one token of each group older than the window; `kept` are the package's own draws. */
function random_tokens({ length }, { group, window, kept }) {
  const P = new Pooling();
  kept[group].slice(0, coreCount(length, group, window)).forEach((t) => P.token(t, "kept"));
  return withRaw(P, length, group, window);
}

/** StreamingLLM: the first tokens, and `recent` tokens besides the row's own. */
function streaming_llm({ length }, { sinks, recent }) {
  return firstAndNear(length, sinks, recent + 1);
}

/** LM-Infinite: the first tokens, and the nearest, the row's own included. (No rotary positions here to limit.) */
function lm_infinite({ length }, { local, global_tokens }) {
  return firstAndNear(length, global_tokens, local);
}

/** MInference's A-shape: the same tokens as LM-Infinite. */
function a_shape({ length }, { sinks, window }) {
  return firstAndNear(length, sinks, window);
}

/** LongLoRA: a row sees its own block up to itself; for the second half of the heads, blocks are half a block later. */
function longlora({ length, index, heads }, { group }) {
  const shift = 2 * index >= heads ? Math.floor(group / 2) : 0;
  const start = (i) => Math.max(0, shift + group * Math.floor((i - shift) / group));
  return { pooling: null, each: 1, intervals: table(length, (i) => [[start(i), i + 1]]) };
}

/** How many cores the last of `length` rows sees. */
export function coreCount(length, group, window) {
  return Math.max(0, Math.floor((length - window) / group));
}

/** Put the tokens after the C pooled columns: row i sees the cores [0, n(i)) and the tokens [g n(i), i]. */
function withRaw(P, length, group, window) {
  const C = P.tokens.length, n = (i) => coreCount(i + 1, group, window);
  for (let t = 0; t < length; t++) P.token(t);
  return { pooling: P, each: 2, intervals: table(length, (i) => [[0, n(i)], [C + group * n(i), C + i + 1]]) };
}

/** Row i sees those of the first tokens that are not near, and the `near` nearest, its own included. */
function firstAndNear(length, first, near) {
  const start = (i) => Math.max(0, i + 1 - near);
  const intervals = table(length, (i) => [[0, Math.min(first, start(i))], [start(i), i + 1]]);
  return { pooling: null, first, each: 2, intervals };
}
