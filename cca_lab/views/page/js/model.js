/** GPT-2, forward only: in each block attention and then two layers, with the weights that `weights.js` unpacked. */

import { dot, intervalAttention } from "./attention.js";
import { MECHANISMS } from "./mechanisms.js";

/**
 * One model reading one text with one mechanism.
 *
 * A row depends on earlier rows only, so a text that begins like the last one is read from where it differs. (DGA with
 * choose "prompt" chooses from the whole text: `causal` is false, and everything is read again.)
 */
export class Reader {
  /**
   * @param {import("./weights.js").Model} model
   * @param {import("./linear.js").Memory} memory where there is room for `Reader.floats(model.config)` numbers.
   */
  constructor(model, memory) {
    const { width, inner, positions, layers, heads } = model.config;
    Object.assign(this, { model, memory, dim: width / heads });
    const rows = positions + 3;  // the product may overwrite up to 3 rows after the last
    this.x = memory.zeros(rows * width);
    this.normed = memory.zeros(rows * width);
    this.wide = memory.zeros(rows * Math.max(3 * width, inner));
    this.layers = Array.from({ length: layers }, () => Array.from({ length: heads }, () => ({
      q: new Float32Array(positions * this.dim), k: new Float32Array(positions * this.dim),
      v: new Float32Array(positions * this.dim), known: new Map() })));
    this.begin("full", {});
  }

  /** @returns {number} how many numbers of memory a reader takes. */
  static floats({ width, inner, positions }) {
    return (positions + 3) * (2 * width + Math.max(3 * width, inner)) + 64;
  }

  /** Choose a mechanism; what was read is forgotten. */
  begin(name, options, model = this.model) {
    Object.assign(this, { name, options, model, ids: [] });
    this.causal = !(name === "dga" && options.choose === "prompt");
    this.layers.flat().forEach(({ known }) => known.clear());
  }

  /**
   * Read a text, from its first new token on.
   * @param {number[]} ids its tokens.
   * @returns {Float32Array} the logits of the token that follows, one for each of the vocabulary.
   */
  read(ids) {
    let from = 0;
    while (this.causal && from < ids.length - 1 && ids[from] === this.ids[from]) from++;
    this.layers.flat().forEach(({ known }) => [...known.keys()].forEach((end) => end > from && known.delete(end)));
    this.ids = [...ids];
    this.embed(from);
    for (let layer = 0; layer < this.layers.length; layer++) this.block(layer, from);
    return this.logits();
  }

  /** x = the embedding of the token + that of its position, for the rows from `from` on. */
  embed(from) {
    const { tokens, places, config: { width } } = this.model;
    for (let i = from; i < this.ids.length; i++) {
      for (let d = 0; d < width; d++) {
        this.x[(i - from) * width + d] = tokens[this.ids[i] * width + d] + places[i * width + d];
      }
    }
  }

  /** x = x + attention(norm(x)), then x = x + second(relu(first(norm(x)))); the first row of x is row `from`. */
  block(layer, from) {
    const { width, inner } = this.model.config, length = this.ids.length;
    const { norm1, qkv, out, norm2, first, second } = this.model.blocks[layer];
    let rows = length - from;
    this.normalise(norm1, rows);
    this.memory.linear(this.normed, qkv, this.wide, rows);
    this.split(layer, from);
    if (layer === this.layers.length - 1) {  // nothing reads the other rows: the answer follows the last
      this.x.copyWithin(0, (rows - 1) * width, rows * width);
      rows = 1;
    }
    this.attend(layer, length - rows);
    this.memory.linear(this.normed, out, this.wide, rows);
    for (let n = 0; n < rows * width; n++) this.x[n] += this.wide[n];
    this.normalise(norm2, rows);
    this.memory.linear(this.normed, first, this.wide, rows);
    for (let n = 0; n < rows * inner; n++) if (this.wide[n] < 0) this.wide[n] = 0;
    this.memory.linear(this.wide, second, this.normed, rows);
    for (let n = 0; n < rows * width; n++) this.x[n] += this.normed[n];
  }

  /** Copy the queries, keys and values of the rows from `from` on out of `wide`, head by head. */
  split(layer, from) {
    const { width } = this.model.config, { dim } = this;
    this.layers[layer].forEach((head, index) => [head.q, head.k, head.v].forEach((x, which) => {
      for (let i = from; i < this.ids.length; i++) {
        const place = (i - from) * 3 * width + which * width + index * dim;
        x.set(this.wide.subarray(place, place + dim), i * dim);
      }
    }));
  }

  /** Attend with the rows from `from` on, and join the heads in `normed`. */
  attend(layer, from) {
    const { width } = this.model.config, { dim } = this, length = this.ids.length;
    const attended = new Float32Array(length * dim);
    this.layers[layer].forEach(({ q }, index) => {
      const { columns, keys, values } = this.columns(layer, index);
      intervalAttention(q, keys, values, columns, { from, to: length, dim, scale: dim ** -0.5 }, attended);
      for (let i = from; i < length; i++) {
        this.normed.set(attended.subarray(i * dim, (i + 1) * dim), (i - from) * width + index * dim);
      }
    });
  }

  /** @returns the columns of a head, with their keys P K and values P V. */
  columns(layer, index) {
    const { q, k, v, known } = this.layers[layer][index], { dim } = this, length = this.ids.length;
    const heads = this.layers[layer].length;
    const columns = MECHANISMS[this.name]({ q, k, length, dim, scale: dim ** -0.5, index, heads, known }, this.options);
    const own = (x) => (columns.pooling ? columns.pooling.of(x, dim) : x.subarray(0, length * dim));
    return { columns, keys: own(k), values: own(v) };
  }

  /**
   * What the heads of a layer read, in the mean.
   * @returns {{pairs: number, all: number}} pairs of query and key that a head scores, and those of full attention.
   */
  cost(layer = 0) {
    const length = this.ids.length, heads = this.layers[layer].length;
    let pairs = 0;
    for (let head = 0; head < heads; head++) {
      const { intervals } = this.columns(layer, head).columns;
      for (let n = 0; n < intervals.length; n += 2) pairs += (intervals[n + 1] - intervals[n]) / heads;
    }
    return { pairs, all: (length * (length + 1)) / 2 };
  }

  /** normed = (x - mean) / sqrt(variance + epsilon) * weight + bias, row by row. */
  normalise({ weight, bias }, rows) {
    const { width, epsilon } = this.model.config, { x, normed } = this;
    for (let at = 0; at < rows * width; at += width) {
      let mean = 0, variance = 0;
      for (let d = 0; d < width; d++) mean += x[at + d] / width;
      for (let d = 0; d < width; d++) variance += (x[at + d] - mean) ** 2 / width;
      const factor = 1 / Math.sqrt(variance + epsilon);
      for (let d = 0; d < width; d++) normed[at + d] = (x[at + d] - mean) * factor * weight[d] + bias[d];
    }
  }

  /** @returns {Float32Array} norm(x) times the embedding of each token of the vocabulary, for the last row. */
  logits() {
    const { norm, tokens, config: { width } } = this.model;
    this.normalise(norm, 1);
    const logit = (_, token) => dot(this.normed, 0, tokens, token * width, width);
    return Float32Array.from({ length: tokens.length / width }, logit);
  }
}
