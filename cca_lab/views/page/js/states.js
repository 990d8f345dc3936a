/** What the explorer's view draws of a text that was read: the contract is in ../../explorer/js/state.js. */

import { intervalsOf, rowWeights } from "./attention.js";
import { range, table } from "./columns.js";
import { focalCount } from "./dga.js";
import { coreCount } from "./mechanisms.js";

const LARGEST_MAP = 256, THUMBNAIL = 32;  // rows of a matrix, and of a small one
const NUMBER_BYTES = 4;

/** One head of a text that was read: its columns, and the weights of any row. */
export class Head {
  /** @param {import("./model.js").Reader} reader */
  constructor(reader, layer, head) {
    const { columns, keys } = reader.columns(layer, head), { q, k } = reader.layers[layer][head];
    const length = reader.ids.length, all = { each: 1, intervals: table(length, (i) => [[0, i + 1]]) };
    Object.assign(this, { columns, keys, q, k, length, all, dim: reader.dim, scale: reader.dim ** -0.5 });
    this.buffer = new Float64Array(keys.length / reader.dim);
    const { pooling, first = 0 } = columns;
    this.list = pooling ?
      pooling.tokens.map((tokens, c) => ({ kind: pooling.kinds[c], tokens, weights: pooling.weights[c] })) :
      range(0, length).map((t) => ({ kind: t < first ? "sink" : "raw", tokens: [t], weights: [1] }));
  }

  /** The columns that a row sees, their weights, the weights of the tokens in them, and those of full attention. */
  row(query) {
    const seen = intervalsOf(this.columns, query).flatMap(([start, end]) => range(start, end));
    const weights = this.weights(this.keys, this.columns, query, seen.length);
    const effective = new Array(query + 1).fill(0);
    seen.forEach((c, n) => {
      const { tokens, weights: pooling } = this.list[c];
      tokens.forEach((t, m) => { effective[t] += weights[n] * pooling[m]; });
    });
    return { query, seen, weights, effective, full: this.weights(this.k, this.all, query, query + 1) };
  }

  /** The softmax of the `count` columns that a row sees among some keys. */
  weights(keys, columns, row, count) {
    const total = rowWeights(this.q, keys, columns, { row, dim: this.dim, scale: this.scale }, this.buffer);
    return Array.from(this.buffer.subarray(0, count), (weight) => weight / total);
  }

  /** Both matrices, with several tokens an entry where there are many, and the mean over the rows of their distance. */
  maps(largest) {
    const step = Math.ceil(this.length / largest), size = Math.ceil(this.length / step);
    const own = new Uint8Array(size * size), full = new Uint8Array(size * size);
    let distance = 0;
    for (let i = 0; i < this.length; i++) {
      const row = this.row(i), line = Math.floor(i / step) * size;
      let shared = 0;
      for (let t = 0; t <= i; t++) {
        const at = line + Math.floor(t / step);
        own[at] = Math.max(own[at], byte(row.effective[t]));
        full[at] = Math.max(full[at], byte(row.full[t]));
        shared += Math.min(row.effective[t], row.full[t]);
      }
      distance += (1 - shared) / this.length;
    }
    return { size, own, full, distance };
  }
}

const byte = (weight) => Math.round(255 * Math.sqrt(Math.min(1, weight)));

/** The state of one head and a row (null for the last), without what the page knows: words, numbers, names. */
export function headState(reader, layer, head, row) {
  const one = new Head(reader, layer, head), { size, own, full } = one.maps(LARGEST_MAP);
  const { pairs, all } = reader.cost(layer);
  const bytes = (count) => count && 2 * NUMBER_BYTES * count * reader.dim * reader.layers[layer].length;
  const kept = entries(reader.name, reader.options, one.length);
  return { columns: one.list, row: one.row(row ?? one.length - 1), maps: { size, own, full },
    totals: { pairs, pairsFull: all, bytes: bytes(kept), bytesFull: bytes(one.length), entries: kept,
      entriesFull: one.length } };
}

/** A small matrix of every head, and how far each is from full attention. */
export function overview(reader) {
  const maps = reader.layers.flatMap((heads, layer) => heads.map((_, n) => new Head(reader, layer, n).maps(THUMBNAIL)));
  const size = maps[0].size, all = new Uint8Array(maps.length * size * size);
  maps.forEach(({ own }, n) => all.set(own, n * size * size));
  return { layers: reader.layers.length, heads: reader.layers[0].length, size, maps: all,
    distances: maps.map(({ distance }) => distance) };
}

/** @returns {?number} keys and values that a decoder keeps for one head after a text; null without a cache. */
export function entries(name, options, length) {
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
