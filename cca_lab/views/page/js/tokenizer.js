/** Byte-level BPE: text to tokens and back. */

// Words with the space before them, numbers, marks, and spaces, as GPT-2 splits a text before it merges bytes.
// JavaScript's own \s is another set of characters than the one of Unicode, which the tokenizer was trained with.
const SPLIT = new RegExp("'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+|" +
                         "\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");

export class Tokenizer {
  /**
   * @param {object} packed
   * @param {string[]} packed.tokens the bytes of each token, one character of code 0 to 255 for each.
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
        return text.split(special).flatMap((part, n) => [...(n ? [this.ids.get(special)] : []), ...this.encode(part)]);
      }
    }
    return (text.match(SPLIT) ?? []).flatMap((word) => {
      if (!this.words.has(word)) this.words.set(word, this.merge(word));
      return this.words.get(word);
    });
  }

  /** Begin with the bytes of a word, and merge the pair that was learnt first until no pair is left. */
  merge(word) {
    const ids = Array.from(new TextEncoder().encode(word), (byte) => this.ids.get(String.fromCharCode(byte)));
    for (;;) {
      const ranks = ids.slice(1).map((right, n) => this.ranks.get(ids[n] * this.tokens.length + right) ?? Infinity);
      const at = ranks.indexOf(Math.min(...ranks));
      if (at < 0 || ranks[at] === Infinity) return ids;
      ids.splice(at, 2, this.ids.get(this.tokens[ids[at]] + this.tokens[ids[at + 1]]));
    }
  }

  /** @returns {string} the text of tokens; bytes that are no character alone become U+FFFD. */
  decode(ids) {
    const bytes = ids.flatMap((id) => Array.from(this.tokens[id], (character) => character.charCodeAt(0)));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
  }
}
