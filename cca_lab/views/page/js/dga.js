/** Dynamic Group Attention: the tokens that receive most attention stay raw, the others are pooled in groups. */

import { rowWeights } from "./attention.js";
import { Pooling, phi, range, table } from "./columns.js";

/**
 * @param {import("./mechanisms.js").Head} head
 * @param {object} options
 * @param {number} options.group tokens in a group.
 * @param {number} options.gamma the share of tokens that are focal.
 * @param {string} options.choose "prompt": they are chosen among all tokens, later ones included (the paper's);
 *     "blocks": in each block separately, and a row reads only past blocks divided, which is causal.
 * @param {number} options.block tokens in a block.
 */
export function dga(head, options) {
  const { group, choose, block } = options, { length } = head;
  const whole = choose === "prompt", span = whole ? length : block;
  const count = whole ? 1 : Math.floor((length - 1) / block);  // the row's own block is not divided
  const focal = range(0, count).flatMap((n) => focalTokens(head, n * span, span, options));
  const chosen = new Set(focal), others = range(0, count * span).filter((t) => !chosen.has(t));
  const P = new Pooling();
  focal.forEach((t) => P.token(t, "focal"));
  for (let first = 0; first < others.length; first += group) {
    const members = others.slice(first, first + group);
    P.column("group", members, phi(head, members));
  }
  const raw = P.tokens.length;  // the column of the first raw token
  (whole ? others : range(0, length)).forEach((t) => P.token(t));
  const each = focal.length / Math.max(1, count);
  const rows = whole ? promptRows(chosen, raw, options) : blockRows(each, count, raw, options);
  return { pooling: P, each: 3, intervals: table(length, rows) };
}

/** Row i sees the focal tokens up to i, the groups that ended before i, and the members up to i of the open group. */
function promptRows(chosen, raw, { group }) {
  const F = chosen.size;
  let kept = 0;
  return (i) => {  // called for i = 0, 1, ...
    kept += chosen.has(i) ? 1 : 0;
    const others = i + 1 - kept, closed = Math.floor((others - (chosen.has(i) ? 0 : 1)) / group);
    return [[0, kept], [F, F + closed], [raw + group * closed, raw + others]];
  };
}

/** Row i sees the focal tokens and the groups of the blocks before its own, and its own block up to i. */
function blockRows(focal, count, raw, { group, block }) {
  const F = focal * count, groups = (block - focal) / group;  // focal tokens in all, groups of a block
  return (i) => {
    const before = Math.floor(i / block);
    return [[0, focal * before], [F, F + groups * before], [raw + block * before, raw + i + 1]];
  };
}

/** How many tokens of a segment are focal: a share, and as many more as fill no group. */
export function focalCount(span, { group, gamma }) {
  const share = Math.min(span, Math.floor(gamma * span + 1e-9));
  return share + ((span - share) % group);
}

/** The focal tokens of the segment [first, first + span), ascending: the highest scores, of equal ones the earlier. */
function focalTokens(head, first, span, options) {
  const end = first + span, count = focalCount(span, options);
  if (!head.known.has(end)) head.known.set(end, scores(head, first, span));
  const score = head.known.get(end);
  const ranked = range(0, span).sort((a, b) => score[b] - score[a] || a - b);
  return ranked.slice(0, count).sort((a, b) => a - b).map((t) => first + t);
}

/** The mean attention that each token of a segment receives from the rows of the segment that see it. */
function scores({ q, k, dim, scale }, first, span) {
  const part = (x) => x.subarray(first * dim, (first + span) * dim);
  const columns = { pooling: null, each: 1, intervals: table(span, (i) => [[0, i + 1]]) };
  const weights = new Float64Array(span), sums = new Float64Array(span);
  for (let row = 0; row < span; row++) {
    const total = rowWeights(part(q), part(k), columns, { row, dim, scale }, weights);
    for (let t = 0; t <= row; t++) sums[t] += weights[t] / total;
  }
  return sums.map((sum, t) => sum / (span - t));
}
