/** Where each column is drawn: above the tokens that it pools, in lanes, so that no two columns overlap. */

export const ORDER = ["slot", "group", "core", "kept", "focal", "sink", "raw"];  // from top to bottom
const TOKENS = { sink: "raw" };  // kinds that share lanes, if they do not overlap

/**
 * @typedef {object} Lane
 * @property {string} kind      of its columns; that of the lowest in ORDER where several share it
 * @property {number[]} columns indices, by their first token
 */

/**
 * Put columns into lanes: from each kind's first lane on, the first one in which they overlap nothing.
 *
 * @param {{kind: string, tokens: number[]}[]} columns
 * @param {number[]} shown the columns to draw.
 * @returns {Lane[]} from top to bottom.
 */
export function lanesOf(columns, shown) {
  const byKind = new Map(ORDER.map((kind) => [kind, []]));
  const first = (column) => columns[column].tokens[0], last = (column) => columns[column].tokens.at(-1);
  const ordered = [...shown].sort((a, b) => first(a) - first(b) || a - b);
  for (const kind of ["raw", ...ORDER.filter((kind) => kind !== "raw")]) {
    for (const column of ordered.filter((one) => columns[one].kind === kind)) {
      const shared = byKind.get(TOKENS[kind] ?? kind), own = byKind.get(kind);
      const free = [...new Set([...shared, ...own])].find(({ columns: there }) => there.every((other) =>
        last(other) < first(column) || first(other) > last(column)));
      if (free) free.columns.push(column);
      else own.push({ kind, columns: [column] });
    }
  }
  return ORDER.flatMap((kind) => byKind.get(kind));
}

/** @returns {number} how many lanes the pooled columns need. */
export function pooledLanes(lanes) {
  return lanes.filter(({ kind }) => isPooled(kind)).length;
}

/** @returns {boolean} whether columns of a kind hold several tokens. */
export function isPooled(kind) {
  return kind === "core" || kind === "group" || kind === "slot";
}

/**
 * Merge neighbours of nearly the same weight, so that a wide column is a few rectangles.
 *
 * @returns {{start: number, end: number, level: number}[]} tokens [start, end), level 1 to `levels`.
 */
export function runs({ tokens, weights }, levels) {
  let largest = 0;
  for (const weight of weights) largest = Math.max(largest, weight);
  const found = [];
  tokens.forEach((token, n) => {
    const level = Math.max(1, Math.ceil(levels * weights[n] / largest - 1e-9)), before = found.at(-1);
    if (before && before.end === token && before.level === level) before.end++;
    else found.push({ start: token, end: token + 1, level });
  });
  return found;
}
