/** GPT-2, forward only: the weights that `page/weights.py` packed, and a reader of texts. */

const BLOCK = 128;  // weights that share a step: `BLOCK` of page/weights.py

/**
 * One model reading one text with one mechanism.
 *
 * A row depends on earlier rows only, so a text that begins like the last one is read from where it
 * differs. (DGA that chooses in the prompt is not causal, and reads everything again.)
 */
class Reader {
  /** @param {Model} model */
  constructor(model) {
    const { width, inner, positions, layers, heads } = model.config;
    Object.assign(this, { model, dim: width / heads });
    const rows = positions + 1;  // `linear` may overwrite the row after the last
    this.x = new Float32Array(rows * width);
    this.normed = new Float32Array(rows * width);
    this.wide = new Float32Array(rows * Math.max(3 * width, inner));
    this.layers = Array.from({ length: layers }, () => Array.from({ length: heads }, () => ({
      q: new Float32Array(positions * this.dim), k: new Float32Array(positions * this.dim),
      v: new Float32Array(positions * this.dim), known: new Map() })));
    this.begin("full", {});
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
    this.layers.flat().forEach(({ known }) =>
      [...known.keys()].forEach((end) => end > from && known.delete(end)));
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

  /** x += attention(norm(x)), then x += second(relu(first(norm(x)))); x begins with row `from`. */
  block(layer, from) {
    const { width, inner } = this.model.config, length = this.ids.length;
    const { norm1, qkv, out, norm2, first, second } = this.model.blocks[layer];
    let rows = length - from;
    this.normalise(norm1, rows);
    linear(this.normed, qkv, this.wide, rows);
    this.split(layer, from);
    if (layer === this.layers.length - 1) {  // the answer follows the last row: none reads others
      this.x.copyWithin(0, (rows - 1) * width, rows * width);
      rows = 1;
    }
    this.attend(layer, length - rows);
    linear(this.normed, out, this.wide, rows);
    for (let n = 0; n < rows * width; n++) this.x[n] += this.wide[n];
    this.normalise(norm2, rows);
    linear(this.normed, first, this.wide, rows);
    for (let n = 0; n < rows * inner; n++) if (this.wide[n] < 0) this.wide[n] = 0;
    linear(this.wide, second, this.normed, rows);
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
      const rows = { from, to: length, dim, scale: dim ** -0.5 };
      intervalAttention(q, keys, values, columns, rows, attended);
      for (let i = from; i < length; i++) {
        const row = attended.subarray(i * dim, (i + 1) * dim);
        this.normed.set(row, (i - from) * width + index * dim);
      }
    });
  }

  /** @returns the columns of a head, with their keys P K and values P V. */
  columns(layer, index) {
    const { q, k, v, known } = this.layers[layer][index], { dim } = this, length = this.ids.length;
    const heads = this.layers[layer].length;
    const head = { q, k, length, dim, scale: dim ** -0.5, index, heads, known };
    const columns = MECHANISMS[this.name](head, this.options), { pooling } = columns;
    const pooled = (x) => (pooling ? pooling.of(x, dim) : x.subarray(0, length * dim));
    return { columns, keys: pooled(k), values: pooled(v) };
  }

  /**
   * What the heads of a layer read, in the mean.
   * @returns {object} pairs of query and key that a head scores, and all those of full attention.
   */
  cost(layer = 0) {
    const length = this.ids.length, heads = this.layers[layer].length;
    let pairs = 0;
    for (let head = 0; head < heads; head++) {
      const { intervals } = this.columns(layer, head).columns;
      for (let n = 0; n < intervals.length; n += 2) {
        pairs += (intervals[n + 1] - intervals[n]) / heads;
      }
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
      for (let d = 0; d < width; d++) {
        normed[at + d] = (x[at + d] - mean) * factor * weight[d] + bias[d];
      }
    }
  }

  /** @returns {Float32Array} norm(x) of the last row times the embedding of each token. */
  logits() {
    const { norm, tokens, config: { width } } = this.model;
    this.normalise(norm, 1);
    const logit = (_, token) => dot(this.normed, 0, tokens, token * width, width);
    return Float32Array.from({ length: tokens.length / width }, logit);
  }
}

/**
 * Compute out = bias + x w^T for some rows, in tiles of 2 rows x 4 columns that stay in registers.
 * @param {Float32Array} x (rows, n), with room for an even number of rows.
 * @param {object} layer weight (m, n) and bias (m); m is a multiple of 4.
 * @param {Float32Array} out (rows, m); the row after the last may be overwritten.
 * @param {number} rows
 */
function linear(x, { weight, bias }, out, rows) {
  const m = bias.length, n = weight.length / m;
  for (let j = 0; j < m; j += 4) {
    const w0 = j * n, w1 = w0 + n, w2 = w1 + n, w3 = w2 + n;
    for (let i = 0; i < rows; i += 2) {
      const x0 = i * n, x1 = x0 + n, to = i * m + j;
      let a0 = bias[j], a1 = bias[j + 1], a2 = bias[j + 2], a3 = bias[j + 3];
      let b0 = a0, b1 = a1, b2 = a2, b3 = a3;
      for (let k = 0; k < n; k++) {
        const a = x[x0 + k], b = x[x1 + k];
        const p = weight[w0 + k], q = weight[w1 + k], r = weight[w2 + k], s = weight[w3 + k];
        a0 += a * p; a1 += a * q; a2 += a * r; a3 += a * s;
        b0 += b * p; b1 += b * q; b2 += b * r; b3 += b * s;
      }
      out[to] = a0; out[to + 1] = a1; out[to + 2] = a2; out[to + 3] = a3;
      out[to + m] = b0; out[to + m + 1] = b1; out[to + m + 2] = b2; out[to + m + 3] = b3;
    }
  }
}

/**
 * @typedef {object} Model
 * @property {object} config layers, heads, width, inner, positions, vocabulary, epsilon.
 * @property {Float32Array} tokens embeddings, (vocabulary, width).
 * @property {Float32Array} places embeddings of the positions, (positions, width).
 * @property {object[]} blocks norm1, qkv, out, norm2, first, second of each layer: weight, of a
 *     matrix (m, n), and bias (m).
 * @property {object} norm the last norm.
 */

/**
 * Unpack a model.
 * @param {object} packed config and tensors: [path, size] in the order of the parts.
 * @param {object[]} parts a weight is the sum of its numbers in all of them.
 * @returns {Model}
 */
function unpack({ config, tensors }, parts) {
  const model = { config, blocks: [] };
  for (const [path, size] of tensors) {
    setPath(model, path.split("."), new Float32Array(size));
  }
  for (const part of parts) {
    const numbers = part.kind === "half" ? halves(part) : steps(part);
    let from = 0;
    for (const [path, size] of tensors) {
      const array = path.split(".").reduce((object, key) => object[key], model);
      for (let n = 0; n < size; n++) array[n] += numbers[from + n];
      from += size;
    }
  }
  return model;
}

/** Set object.a.b.c for the path [a, b, c], with the objects on the way. */
function setPath(object, [key, ...rest], value) {
  if (rest.length === 0) object[key] = value;
  else setPath((object[key] ??= {}), rest, value);
}

/** @returns {Float32Array} the numbers of a part in float16. */
function halves({ data }) {
  const bits = new Uint16Array(bytesOf(data).buffer), numbers = new Float32Array(bits.length);
  for (let n = 0; n < bits.length; n++) numbers[n] = HALF[bits[n]];
  return numbers;
}

/** @returns {Float32Array} the numbers of a part in steps: a count times the step of its block. */
function steps({ data, steps }) {
  const counts = new Int16Array(bytesOf(data).buffer);
  const step = new Float32Array(bytesOf(steps).buffer);
  const numbers = new Float32Array(counts.length);
  for (let n = 0; n < counts.length; n++) numbers[n] = counts[n] * step[Math.floor(n / BLOCK)];
  return numbers;
}

/** The value of each pattern of 16 bits: a sign, 5 bits of exponent, 10 bits of fraction. */
const HALF = Float32Array.from({ length: 65536 }, (_, bits) => {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
});
