/** What a mechanism returns for one head, and the small functions with which the mechanisms make it. */

import { dot } from "./attention.js";

/**
 * @typedef {object} Columns
 * @property {?Pooling} pooling P; null if column t is token t.
 * @property {number} [first] where column t is token t: how many of the first tokens all rows see.
 * @property {Int32Array} intervals the half-open intervals [start, end) of columns of each row, one row after another.
 * @property {number} each intervals of a row.
 */

/** The matrix P, column by column: which tokens are in a column, and with which weights; these sum to 1. */
export class Pooling {
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

/** The weights with which the query of the last member pools a group: softmax(scale q_last . k_t). */
export function phi({ q, k, dim, scale }, members) {
  const last = members[members.length - 1];
  const logits = members.map((t) => scale * dot(q, last * dim, k, t * dim, dim));
  const largest = Math.max(...logits), weights = logits.map((logit) => Math.exp(logit - largest));
  const total = weights.reduce((sum, weight) => sum + weight);
  return weights.map((weight) => weight / total);
}

/** @returns {Int32Array} the intervals that a function gives for rows 0, 1, ..., one row after another. */
export function table(length, intervalsOfRow) {
  return Int32Array.from(range(0, length).flatMap((i) => intervalsOfRow(i).flat()));
}

/** @returns {number[]} start, start + 1, ..., end - 1. */
export function range(start, end) {
  return Array.from({ length: end - start }, (_, n) => start + n);
}
