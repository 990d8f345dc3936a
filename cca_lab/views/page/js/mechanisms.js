/**
 * The mechanisms: how each pools tokens into columns, and which intervals of columns a row sees.
 *
 * Each function takes one head and the options, and returns `Columns`. The package's own classes,
 * of the same names, say which paper each is from and what differs from it.
 */

/**
 * @typedef {object} Columns
 * @property {?Pooling} pooling P; null if column t is token t.
 * @property {number} [first] where column t is token t: how many of the first tokens all rows see.
 * @property {Int32Array} intervals the intervals [start, end) of columns, row after row.
 * @property {number} each intervals of a row.
 */

/**
 * @typedef {object} Known what a mechanism knows of one head of one layer.
 * @property {Float32Array} q queries, (L, D).
 * @property {Float32Array} k keys, (L, D).
 * @property {number} length L.
 * @property {number} dim D.
 * @property {number} scale factor on the logits.
 * @property {number} index the number of the head, from 0.
 * @property {number} heads how many heads the layer has.
 * @property {Map<number, any>} known what was computed from the first n tokens, by n.
 */

/** The name of each mechanism and its columns. */
const MECHANISMS = {
  full, cca, mean_pooling, random_tokens, streaming_llm, lm_infinite, a_shape, longlora, dga,
};

/** Full attention: row i sees the tokens [0, i]. */
function full({ length }) {
  return { pooling: null, each: 1, intervals: table(length, (i) => [[0, i + 1]]) };
}

/** CCA-Attention: each group older than the window is one core, pooled with its last query. */
function cca(head, { group, window, pooling }) {
  const P = new Pooling();
  for (let p = 0; p < coreCount(head.length, group, window); p++) {
    const members = range(p * group, p * group + group);
    const mean = members.map(() => 1 / group);
    P.column("core", members, pooling === "mean" ? mean : phi(head, members));
  }
  return withRaw(P, head.length, group, window);
}

/** Mean pooling: CCA with the plain mean of each group. */
function mean_pooling(head, { group, window }) {
  return cca(head, { group, window, pooling: "mean" });
}

/** Random tokens: one token of each group older than the window; `kept` are the package's draws. */
function random_tokens({ length }, { group, window, kept }) {
  const P = new Pooling();
  kept[group].slice(0, coreCount(length, group, window)).forEach((t) => P.token(t, "kept"));
  return withRaw(P, length, group, window);
}

/** StreamingLLM: the first tokens, and `recent` tokens besides the row's own. */
function streaming_llm({ length }, { sinks, recent }) {
  return firstAndNear(length, sinks, recent + 1);
}

/** LM-Infinite: the first and the nearest tokens, the row's own included; no positions to limit. */
function lm_infinite({ length }, { local, global_tokens }) {
  return firstAndNear(length, global_tokens, local);
}

/** MInference's A-shape: the same tokens as LM-Infinite. */
function a_shape({ length }, { sinks, window }) {
  return firstAndNear(length, sinks, window);
}

/** LongLoRA: a row sees its own block; in the second half of the heads, blocks begin later. */
function longlora({ length, index, heads }, { group }) {
  const shift = 2 * index >= heads ? Math.floor(group / 2) : 0;
  const start = (i) => Math.max(0, shift + group * Math.floor((i - shift) / group));
  return { pooling: null, each: 1, intervals: table(length, (i) => [[start(i), i + 1]]) };
}

/** How many cores the last of `length` rows sees. */
function coreCount(length, group, window) {
  return Math.max(0, Math.floor((length - window) / group));
}

/** Put the tokens after the C cores: row i sees the cores [0, n(i)) and the tokens [g n(i), i]. */
function withRaw(P, length, group, window) {
  const C = P.tokens.length, n = (i) => coreCount(i + 1, group, window);
  for (let t = 0; t < length; t++) P.token(t);
  const intervals = table(length, (i) => [[0, n(i)], [C + group * n(i), C + i + 1]]);
  return { pooling: P, each: 2, intervals };
}

/** Row i sees the `near` nearest tokens, its own included, and the first ones before them. */
function firstAndNear(length, first, near) {
  const start = (i) => Math.max(0, i + 1 - near);
  const intervals = table(length, (i) => [[0, Math.min(first, start(i))], [start(i), i + 1]]);
  return { pooling: null, first, each: 2, intervals };
}

/**
 * Dynamic Group Attention: the tokens that receive most attention stay raw, the others are pooled.
 * @param {Known} head
 * @param {object} options
 * @param {number} options.group tokens in a group.
 * @param {number} options.gamma the share of tokens that are focal.
 * @param {string} options.choose "prompt": they are chosen among all tokens, later ones included,
 *     as in the paper; "blocks": in each block, and a row reads only past blocks so: it is causal.
 * @param {number} options.block tokens in a block.
 */
function dga(head, options) {
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

/** Row i sees the focal tokens up to i, the groups before i, and the open group up to i. */
function promptRows(chosen, raw, { group }) {
  const F = chosen.size;
  let kept = 0;
  return (i) => {  // called for i = 0, 1, ...
    kept += chosen.has(i) ? 1 : 0;
    const others = i + 1 - kept, closed = Math.floor((others - (chosen.has(i) ? 0 : 1)) / group);
    return [[0, kept], [F, F + closed], [raw + group * closed, raw + others]];
  };
}

/** Row i sees the focal tokens and groups of the blocks before its own, and its block up to i. */
function blockRows(focal, count, raw, { group, block }) {
  const F = focal * count, groups = (block - focal) / group;  // focal in all, groups of a block
  return (i) => {
    const before = Math.floor(i / block);
    return [[0, focal * before], [F, F + groups * before], [raw + block * before, raw + i + 1]];
  };
}

/** How many tokens of a segment are focal: a share, and as many more as fill no group. */
function focalCount(span, { group, gamma }) {
  const share = Math.min(span, Math.floor(gamma * span + 1e-9));
  return share + ((span - share) % group);
}

/** The focal tokens of [first, first + span), ascending: the highest scores, then the earlier. */
function focalTokens(head, first, span, options) {
  const end = first + span, count = focalCount(span, options);
  if (!head.known.has(end)) head.known.set(end, scores(head, first, span));
  const score = head.known.get(end);
  const ranked = range(0, span).sort((a, b) => score[b] - score[a] || a - b);
  return ranked.slice(0, count).sort((a, b) => a - b).map((t) => first + t);
}

/** The mean attention that each token of a segment receives from the segment's later rows. */
function scores({ q, k, dim, scale }, first, span) {
  const segment = (x) => x.subarray(first * dim, (first + span) * dim);
  const columns = { pooling: null, each: 1, intervals: table(span, (i) => [[0, i + 1]]) };
  const weights = new Float64Array(span), sums = new Float64Array(span);
  for (let row = 0; row < span; row++) {
    const total = rowWeights(segment(q), segment(k), columns, { row, dim, scale }, weights);
    for (let t = 0; t <= row; t++) sums[t] += weights[t] / total;
  }
  return sums.map((sum, t) => sum / (span - t));
}

/** @returns {?number} entries that a decoder keeps for one head after a text; null without any. */
function entries(name, options, length) {
  const { group, window, block } = options;
  const divided = (span) => focalCount(span, options) + (span - focalCount(span, options)) / group;
  if (name === "full") return length;
  if (name === "streaming_llm") return Math.min(length, options.sinks + options.recent);
  if (name === "lm_infinite") return Math.min(length, options.global_tokens + options.local - 1);
  if (name === "dga" && options.choose === "prompt") return divided(length);
  if (name === "dga") return Math.floor(length / block) * divided(block) + (length % block);
  if (["cca", "mean_pooling", "random_tokens"].includes(name)) {
    return Math.floor(length / group) + length - group * coreCount(length + 1, group, window);
  }
  return null;
}

/** The matrix P, column by column: its tokens, and their weights, which sum to 1. */
class Pooling {
  constructor() {
    this.tokens = [];   // of each column, an array of tokens
    this.weights = [];  // of each column, as many weights
    this.kinds = [];    // what the explorer's view calls each
  }

  /** Add a column that is one token. */
  token(t, kind = "raw") {
    this.column(kind, [t], [1]);
  }

  /** Add a column that is a mean of tokens. */
  column(kind, tokens, weights) {
    this.kinds.push(kind);
    this.tokens.push(tokens);
    this.weights.push(weights);
  }

  /** @returns {Float32Array} P x, (columns, D), for x (L, D). */
  of(x, dim) {
    const pooled = new Float32Array(this.tokens.length * dim);
    for (let c = 0; c < this.tokens.length; c++) {
      const tokens = this.tokens[c], weights = this.weights[c];
      for (let n = 0; n < tokens.length; n++) {
        for (let d = 0; d < dim; d++) pooled[c * dim + d] += weights[n] * x[tokens[n] * dim + d];
      }
    }
    return pooled;
  }
}

/** The weights with which the last member's query pools a group: softmax(scale q_last . k_t). */
function phi({ q, k, dim, scale }, members) {
  const last = members[members.length - 1];
  const logits = members.map((t) => scale * dot(q, last * dim, k, t * dim, dim));
  const largest = Math.max(...logits), weights = logits.map((logit) => Math.exp(logit - largest));
  const total = weights.reduce((sum, weight) => sum + weight);
  return weights.map((weight) => weight / total);
}

/** @returns {Int32Array} the intervals that a function gives for rows 0, 1, ..., row after row. */
function table(length, intervalsOfRow) {
  return Int32Array.from(range(0, length).flatMap((i) => intervalsOfRow(i).flat()));
}

/** @returns {number[]} the numbers of [start, end). */
function range(start, end) {
  return Array.from({ length: end - start }, (_, n) => start + n);
}
