/** The memory that holds a model's numbers, and the product that takes most of its time: out = bias + x w. */

import { assemble } from "./simd.js";

const TILE = { rows: 4, columns: 8 };
const PAGE = 65536;  // bytes

/** Where tensors lie: one block of WebAssembly memory where it runs, so that nothing is copied; else plain arrays. */
export class Memory {
  /**
   * @param {number} floats how many numbers will be asked for altogether.
   * @param {boolean} simd false for plain JavaScript.
   */
  constructor(floats, simd = true) {
    this.kernel = null;
    this.used = 0;
    if (!simd) return;
    try {
      this.memory = new WebAssembly.Memory({ initial: Math.ceil((4 * floats) / PAGE) + 1 });
      const module = new WebAssembly.Module(assemble());
      this.kernel = new WebAssembly.Instance(module, { env: { memory: this.memory } }).exports.linear;
    } catch {
      this.kernel = null;  // a browser without it, or one that forbids it: the loops below do the same
    }
  }

  /** @returns {Float32Array} `size` zeros. */
  zeros(size) {
    if (!this.kernel) return new Float32Array(size);
    const array = new Float32Array(this.memory.buffer, this.used, size);
    this.used += 16 * Math.ceil(size / 4);
    return array;
  }

  /**
   * Compute out = bias + x w for some rows.
   * @param {Float32Array} x (rows, n), in this memory as all arrays here; with room for a multiple of 4 rows.
   * @param {{weight: Float32Array, bias: Float32Array}} layer weight (n, m), bias (m).
   * @param {Float32Array} out (rows, m); up to 3 rows after the last are overwritten.
   * @param {number} rows
   */
  linear(x, layer, out, rows) {
    const m = layer.bias.length, n = layer.weight.length / m;
    if (!this.kernel || m % TILE.columns) return linear(x, layer.weight, layer.bias, out, rows, n, m);
    const whole = TILE.rows * Math.ceil(rows / TILE.rows);
    this.kernel(x.byteOffset, layer.weight.byteOffset, layer.bias.byteOffset, out.byteOffset, whole, n, m);
  }
}

/** out (rows, m) = bias (m) + x (rows, n) w (n, m), in plain loops: what `simd.js` is tested against. */
export function linear(x, w, bias, out, rows, n, m) {
  const sums = new Float64Array(m);
  for (let i = 0; i < rows; i++) {
    sums.set(bias);
    for (let k = 0; k < n; k++) {
      const a = x[i * n + k];
      for (let j = 0; j < m; j++) sums[j] += a * w[k * m + j];
    }
    out.set(sums, i * m);
  }
}
