/** The weights, as `cca_lab/views/page/weights.py` packed them: a model is a sum of parts, of 16 bits a weight. */

const BLOCK = 128;  // weights that share a step

/**
 * @typedef {object} Model
 * @property {object} config layers, heads, width, inner, positions, vocabulary, epsilon.
 * @property {Float32Array} tokens embeddings, (vocabulary, width).
 * @property {Float32Array} places embeddings of the positions, (positions, width).
 * @property {object[]} blocks norm1, qkv, out, norm2, first, second of each layer: weight (n, m) and bias (m).
 * @property {object} norm the last norm.
 */

/** @returns {number} how many numbers of memory a model takes. */
export function modelFloats({ tensors }) {
  return tensors.reduce((sum, [, size]) => sum + 4 * Math.ceil(size / 4), 0);
}

/**
 * Unpack a model.
 * @param {object} packed config and tensors: [path, size] in the order of the parts.
 * @param {object[]} parts a weight is the sum of its numbers in all of them.
 * @param {import("./linear.js").Memory} memory where the weights will lie.
 * @returns {Model}
 */
export function unpack({ config, tensors }, parts, memory) {
  const model = { config, blocks: [] };
  for (const [path, size] of tensors) place(model, path.split("."), memory.zeros(size));
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
function place(object, [key, ...rest], value) {
  if (rest.length === 0) object[key] = value;
  else place((object[key] ??= {}), rest, value);
}

/** @returns {Float32Array} the numbers of a part in float16. */
function halves({ data }) {
  const bits = new Uint16Array(bytes(data)), numbers = new Float32Array(bits.length);
  for (let n = 0; n < bits.length; n++) numbers[n] = HALF[bits[n]];
  return numbers;
}

/** @returns {Float32Array} the numbers of a part in steps: a count of steps, times the step of its block. */
function steps({ data, steps }) {
  const counts = new Int16Array(bytes(data)), step = new Float32Array(bytes(steps));
  const numbers = new Float32Array(counts.length);
  for (let n = 0; n < counts.length; n++) numbers[n] = counts[n] * step[Math.floor(n / BLOCK)];
  return numbers;
}

/** @returns {ArrayBuffer} the bytes of a base64 text: of each number the lowest first, as in memory. */
function bytes(base64) {
  const text = atob(base64), array = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) array[n] = text.charCodeAt(n);
  return array.buffer;
}

/** The value of each pattern of 16 bits: a sign, 5 bits of exponent, 10 bits of fraction. */
const HALF = Float32Array.from({ length: 65536 }, (_, bits) => {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = (bits & 1023) / 1024;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
});
