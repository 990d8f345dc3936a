/** Documents that name people, and questions for a surname: as the package asks them, in tokens. */

import { range } from "./columns.js";

/** @returns {() => number} numbers from 0 to 1 that a seed determines: a linear congruential generator of 32 bits. */
function random(seed) {
  let state = seed >>> 0;
  const next = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  for (let n = 0; n < 8; n++) next();  // neighbouring seeds begin with neighbouring numbers
  return next;
}

/**
 * Draw documents until the text is full; no first name comes twice.
 * @param {object} words "first" and "last" names, "kinds" of documents, "offsets": see page/questions.py.
 * @param {number} kind number of the kind.
 * @param {number} positions tokens that the model reads.
 * @param {number} seed
 * @returns {{ids: number[], at: number}[]} the tokens of each document, and the place of the surname in them.
 */
export function draw({ first, last, kinds, offsets }, kind, positions, seed) {
  const next = random(seed), pick = (list) => list[Math.floor(next() * list.length)];
  const { frames } = kinds[kind];
  let room = positions - (offsets - 1) - Math.max(...frames.flat().map(([opening]) => opening.length + 1));
  const documents = [];
  for (const name of shuffled(first, next)) {
    const [opening, closing] = pick(pick(frames));
    const ids = [...opening, name, pick(last), ...closing];
    room -= ids.length;
    if (room < 0) break;
    documents.push({ ids, at: opening.length + 1 });
  }
  return documents;
}

function shuffled(list, next) {
  return list.map((value) => [next(), value]).sort((a, b) => a[0] - b[0]).map(([, value]) => value);
}

/**
 * The text that asks for one document: some tokens before, all documents, and the document up to the surname.
 * @returns {{ids: number[], answer: number}} the text and the token that should follow.
 */
export function question(before, documents, offset, asked) {
  const { ids, at } = documents[asked];
  return { ids: [...before.slice(before.length - offset), ...documents.flatMap((own) => own.ids), ...ids.slice(0, at)],
    answer: ids[at] };
}

/** @returns {number[]} `count` numbers from 0 to length - 1, evenly spread, the first and the last among them. */
export function spread(length, count) {
  return range(0, count).map((n) => Math.round((n * (length - 1)) / Math.max(1, count - 1)));
}
