/**
 * The attention of this page: a mechanism is a list of columns, and the intervals that rows see.
 *
 *     out_i = softmax( scale * q_i (P K)^T  over the columns that row i sees )  (P V)
 *
 * A column is a token, or a weighted mean of tokens: a row of P. All indices count from 0.
 */

/**
 * Attend: each row reads the columns in its intervals, in one softmax.
 * @param {Float32Array} q queries, (L, D).
 * @param {Float32Array} keys P K, (columns, D).
 * @param {Float32Array} values P V, (columns, D).
 * @param {Columns} columns what rows see, see mechanisms.js.
 * @param {object} rows rows [from, to), dim D, and the scale of the logits.
 * @param {Float32Array} out (L, D); rows [from, to) are written.
 */
function intervalAttention(q, keys, values, columns, { from, to, dim, scale }, out) {
  const weights = new Float64Array(keys.length / dim), sums = new Float64Array(dim);
  for (let i = from; i < to; i++) {
    const total = rowWeights(q, keys, columns, { row: i, dim, scale }, weights);
    let seen = 0;
    sums.fill(0);
    for (const [start, end] of intervalsOf(columns, i)) {
      addColumns(sums, values, start, end, weights, seen);
      seen += end - start;
    }
    for (let d = 0; d < dim; d++) out[i * dim + d] = sums[d] / total;
  }
}

/** Write exp(logit - largest) of each column that a row sees into `weights`; return their sum. */
function rowWeights(q, keys, columns, { row, dim, scale }, weights) {
  let seen = 0, largest = -Infinity, total = 0;
  for (const [start, end] of intervalsOf(columns, row)) {
    for (let j = start; j < end; j++) {
      const logit = scale * dot(q, row * dim, keys, j * dim, dim);
      weights[seen++] = logit;
      if (logit > largest) largest = logit;
    }
  }
  for (let n = 0; n < seen; n++) total += weights[n] = Math.exp(weights[n] - largest);
  return total;
}

/** @returns {number[][]} the intervals [start, end) of columns that a row sees. */
function intervalsOf({ intervals, each }, row) {
  return Array.from({ length: each }, (_, n) =>
    [intervals[2 * (row * each + n)], intervals[2 * (row * each + n) + 1]]);
}

/** The dot product of `dim` numbers, a multiple of 4, of a from i on and of b from j on. */
function dot(a, i, b, j, dim) {
  let s = 0, t = 0, u = 0, w = 0;  // four sums: none waits for the other
  for (let d = 0; d < dim; d += 4) {
    s += a[i + d] * b[j + d];
    t += a[i + d + 1] * b[j + d + 1];
    u += a[i + d + 2] * b[j + d + 2];
    w += a[i + d + 3] * b[j + d + 3];
  }
  return s + t + u + w;
}

/** Add weights[first], weights[first + 1], ... times the values of [start, end) to `sums`, (D). */
function addColumns(sums, values, start, end, weights, first) {
  const dim = sums.length;
  let j = start, n = first;
  for (; j + 4 <= end; j += 4, n += 4) {  // four columns: each sum is read and written once for all
    const at = j * dim, a = weights[n], b = weights[n + 1], c = weights[n + 2], e = weights[n + 3];
    for (let d = 0; d < dim; d++) {
      const v = at + d;
      sums[d] += a * values[v] + b * values[v + dim] +
        c * values[v + 2 * dim] + e * values[v + 3 * dim];
    }
  }
  for (; j < end; j++, n++) {
    for (let d = 0; d < dim; d++) sums[d] += weights[n] * values[j * dim + d];
  }
}
