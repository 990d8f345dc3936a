/** The numbers of a row, for programs that compute states in a browser; Python's: cca_lab/attention/statistics.py. */

const ROUNDING = 1e-6;  // a running sum this close to 90 % has reached it

/**
 * @param {{query: number, seen: number[], effective: ArrayLike<number>, full: ArrayLike<number>}} row of state.js
 * @param {{tokens: ArrayLike<number>, weights: ArrayLike<number>}[]} columns
 * @returns {object} Numbers of state.js.
 */
export function numbersOf(row, columns) {
  const read = new Set();
  for (const column of row.seen) {
    const { tokens, weights } = columns[column];
    for (let n = 0; n < tokens.length; n++) if (weights[n] > 0) read.add(tokens[n]);
  }
  let lost = 0, shared = 0;
  for (let t = 0; t < row.full.length; t++) {
    if (!read.has(t)) lost += row.full[t];
    shared += Math.min(row.full[t], row.effective[t] ?? 0);
  }
  return { lost, distance: Math.max(0, 1 - shared), k90: keysFor90(row.effective), k90Full: keysFor90(row.full),
    entropy: entropyOf(row.effective), entropyFull: entropyOf(row.full) };
}

/** @returns {number} how many of the largest weights reach 90 %. */
export function keysFor90(weights) {
  let sum = 0, needed = 0;
  for (const weight of Float64Array.from(weights).sort().reverse()) {
    sum += weight;
    needed++;
    if (sum >= 0.9 - ROUNDING) break;
  }
  return needed;
}

/** @returns {number} the entropy in nats. */
export function entropyOf(weights) {
  let sum = 0;
  for (let t = 0; t < weights.length; t++) if (weights[t] > 0) sum -= weights[t] * Math.log(weights[t]);
  return sum;
}
