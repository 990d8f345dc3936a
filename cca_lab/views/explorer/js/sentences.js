/** What the view says about the query, a word or a column. */

import { percent, quoted } from "./dom.js";
import { KIND_NAMES } from "./palette.js";

const MOST_NAMED = 4;  // words of a column that are named

/** @returns {string} what the query sees. */
export function aboutQuery({ row, columns, words }) {
  const counts = new Map();
  for (const column of row.seen) counts.set(columns[column].kind, (counts.get(columns[column].kind) ?? 0) + 1);
  const parts = [...counts].map(([kind, n]) => `${n} ${KIND_NAMES[kind][n === 1 ? 0 : 1]}`), last = parts.pop();
  const all = [parts.join(", "), last].filter(Boolean).join(" and ");
  return `The query ${quoted(words[row.query])}, token ${row.query}, sees ${all}.`;
}

/** @returns {string} the weight of a word, and through which column it is read. */
export function aboutWord({ row, columns, words }, token) {
  const name = `${quoted(words[token])}, token ${token}`;
  if (token > row.query) return `${name}, is later than the query`;
  const own = row.seen.filter((column) => columns[column].tokens.includes(token)).map((column) => {
    const { kind, tokens, weights } = columns[column], what = KIND_NAMES[kind][0];
    const factors = [weightOf(row, column), weights[tokens.indexOf(token)]];
    const how = tokens.length === 1 ? `read as a ${what}` : `read in a ${what}: ${factors.map(percent).join(" × ")}`;
    return { how, weight: factors[0] * factors[1] };
  }).sort((a, b) => b.weight - a.weight);
  const more = own.length > 1 ? `, and in ${own.length - 1} more columns` : "";
  const [here, full] = [row.effective, row.full].map((weights) => percent(weights[token] ?? 0));
  return `${name}: weight ${here}, in full attention ${full}; ${own.length ? own[0].how : "not read"}${more}`;
}

/** @returns {string} the weight of a column, and the words that it pools. */
export function aboutColumn({ row, columns, words }, column) {
  const { kind, tokens, weights } = columns[column], [name] = KIND_NAMES[kind];
  const largest = tokens.map((token, n) => ({ token, weight: weights[n] })).sort((a, b) => b.weight - a.weight);
  const named = largest.slice(0, MOST_NAMED).map(({ token, weight }) => `${quoted(words[token])} ${percent(weight)}`);
  const what = tokens.length === 1 ? quoted(words[tokens[0]]) :
    `${tokens.length} tokens: ${named.join(", ")}${tokens.length > MOST_NAMED ? ", …" : ""}`;
  const seen = row.seen.includes(column) ? `weight ${percent(weightOf(row, column))}` : "not seen by this query";
  return `${name[0].toUpperCase()}${name.slice(1)}, ${seen}: ${what}`;
}

/** @returns {number} the weight of a seen column, never quite 0: JSON has rounded it. */
function weightOf(row, column) {
  return Math.max(row.weights[row.seen.indexOf(column)], Number.MIN_VALUE);
}
