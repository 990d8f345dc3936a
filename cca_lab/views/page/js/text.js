/** Texts: byte-level BPE, and documents with questions for them, as the package asks them. */

// Words with the space before them, numbers, marks, and spaces, as GPT-2 splits a text before it
// merges bytes. JavaScript's \s is not Unicode's set of spaces, with which it was trained.
const SPLIT = new RegExp("'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+|" +
  " ?[^\\p{White_Space}\\p{L}\\p{N}]+|" +
  "\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");

class Tokenizer {
  /**
   * @param {object} packed
   * @param {string[]} packed.tokens the bytes of each, a character of code 0 to 255 for each byte.
   * @param {number[][]} packed.merges pairs of tokens that become one, the first merged first.
   * @param {string[]} packed.special tokens that stand for themselves in a text.
   */
  constructor({ tokens, merges, special }) {
    this.tokens = tokens;
    this.special = special;
    this.ids = new Map(tokens.map((token, id) => [token, id]));
    this.ranks = new Map(merges.map(([left, right], rank) => [left * tokens.length + right, rank]));
    this.words = new Map();  // the tokens of every piece that was encoded
  }

  /** @returns {number[]} the tokens of a text. */
  encode(text) {
    for (const special of this.special) {
      if (text.includes(special)) {
        return text.split(special).flatMap((rest, n) =>
          [...(n ? [this.ids.get(special)] : []), ...this.encode(rest)]);
      }
    }
    return (text.match(SPLIT) ?? []).flatMap((word) => {
      if (!this.words.has(word)) this.words.set(word, this.merge(word));
      return this.words.get(word);
    });
  }

  /** Begin with the bytes of a word, and merge pairs, the one that was learnt first first. */
  merge(word) {
    const id = (byte) => this.ids.get(String.fromCharCode(byte));
    const ids = Array.from(new TextEncoder().encode(word), id);
    for (;;) {
      const ranks = ids.slice(1).map((right, n) =>
        this.ranks.get(ids[n] * this.tokens.length + right) ?? Infinity);
      const at = ranks.indexOf(Math.min(...ranks));
      if (at < 0 || ranks[at] === Infinity) return ids;
      ids.splice(at, 2, this.ids.get(this.tokens[ids[at]] + this.tokens[ids[at + 1]]));
    }
  }

  /** @returns {string} the text of tokens; bytes that are no character alone become U+FFFD. */
  decode(ids) {
    const bytes = ids.flatMap((id) =>
      Array.from(this.tokens[id], (character) => character.charCodeAt(0)));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
  }
}

// ---------------------------------------------------------------- questions

/** @returns {() => number} numbers from 0 to 1: a linear congruential generator of 32 bits. */
function random(seed) {
  let state = seed >>> 0;
  const next = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  for (let n = 0; n < 8; n++) next();  // neighbouring seeds begin with neighbouring numbers
  return next;
}

/**
 * Draw documents until the text is full; no first name comes twice.
 * @param {object} words first and last names, kinds of documents, offsets: see page/data.py.
 * @param {number} kind number of the kind.
 * @param {number} positions tokens that the model reads.
 * @param {number} seed
 * @returns {{ids: number[], at: number}[]} the tokens of each document, and where its surname is.
 */
function draw({ first, last, kinds, offsets }, kind, positions, seed) {
  const next = random(seed), pick = (list) => list[Math.floor(next() * list.length)];
  const { frames } = kinds[kind];
  const longest = Math.max(...frames.flat().map(([opening]) => opening.length + 1));
  let room = positions - (offsets - 1) - longest;
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
 * The text that asks for a document: tokens before, all documents, and this one up to the surname.
 * @returns {{ids: number[], answer: number}} the text and the token that should follow.
 */
function question(before, documents, offset, asked) {
  const { ids, at } = documents[asked];
  const all = documents.flatMap((document) => document.ids);
  return { ids: [...before.slice(before.length - offset), ...all, ...ids.slice(0, at)],
    answer: ids[at] };
}

/** @returns {number[]} `count` numbers evenly spread from 0 to length - 1, both among them. */
function spread(length, count) {
  return range(0, count).map((n) => Math.round((n * (length - 1)) / Math.max(1, count - 1)));
}
