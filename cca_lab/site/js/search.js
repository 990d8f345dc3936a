/** Search in the sections of all pages: every word must occur, at the beginning of a word. */

/**
 * @typedef {object} Index
 * @property {[string, string][]} pages address and title
 * @property {[number, string, string, string][]} sections number of the page, anchor, heading, text
 *
 * @typedef {object} Place
 * @property {string} address of the page, with the section's anchor
 * @property {string} title of the page
 * @property {string} heading
 * @property {string} text of the section
 * @property {number} score
 */

const IN_TITLE = 6, IN_HEADING = 8, WHOLE_HEADING = 30, MOST_IN_TEXT = 5;
const MOST_MARKED = 20, BEFORE = 60, EXCERPT = 180; // the last two in characters
const LETTER = /[\p{L}\p{N}]/u;

/**
 * The words of a question, in lower case; "T1.eq19" and "P_sparse" are one word each.
 * @param {string} question
 * @returns {string[]}
 */
export function words(question) {
  const found = question.toLowerCase().match(/[\p{L}\p{N}_][\p{L}\p{N}_.'-]*/gu) ?? [];
  return [...new Set(found.map((word) => word.replace(/[.'-]+$/, "")))];
}

/**
 * Where a word begins in a text.
 * @param {string} text in lower case
 * @param {string} word
 * @param {number} most places to find
 * @returns {number[]}
 */
export function begins(text, word, most) {
  const places = [];
  for (let at = text.indexOf(word); at >= 0 && places.length < most; at = text.indexOf(word, at + 1)) {
    if (at === 0 || !LETTER.test(text[at - 1])) places.push(at);
  }
  return places;
}

/**
 * The sections that hold every word, the best first.
 * @param {Index} index
 * @param {string} question
 * @param {number} most
 * @returns {Place[]}
 */
export function find(index, question, most) {
  const wanted = words(question);
  if (!wanted.length) return [];
  const titles = index.pages.map(([, title]) => title.toLowerCase());
  const places = [];
  for (const [page, anchor, heading, text] of index.sections) {
    const points = score(wanted, titles[page], heading.toLowerCase(), text.toLowerCase());
    if (!points) continue;
    const [address, title] = index.pages[page];
    places.push({ address: anchor ? `${address}#${encodeURIComponent(anchor)}` : address, title, heading, text,
      score: points });
  }
  return places.sort((one, other) => other.score - one.score).slice(0, most); // stable: else in the order of the pages
}

/**
 * How well a section answers, 0 if a word is missing.
 * @param {string[]} wanted
 * @param {string} title of the page; all texts are in lower case
 * @param {string} heading
 * @param {string} text
 * @returns {number}
 */
function score(wanted, title, heading, text) {
  let points = heading === wanted.join(" ") ? WHOLE_HEADING : 0;
  for (const word of wanted) {
    const inText = begins(text, word, MOST_IN_TEXT).length, inHeading = begins(heading, word, 1).length;
    // The title counts only together with the section: else a word of it would find all sections of its page.
    if (!inText && !inHeading) return 0;
    points += inText + IN_HEADING * inHeading + IN_TITLE * begins(title, word, 1).length;
  }
  return points;
}

/**
 * The part of a text around the first word that its heading does not hold, or else its beginning; in pieces.
 * @param {string} text
 * @param {string} heading
 * @param {string} question
 * @returns {[string, boolean][]} pieces, and whether each is a word that was searched
 */
export function excerpt(text, heading, question) {
  const wanted = words(question), lower = text.toLowerCase();
  const missing = wanted.filter((word) => !begins(heading.toLowerCase(), word, 1).length);
  const hits = wanted.flatMap((word) => begins(lower, word, MOST_MARKED).map((at) => [at, word.length]))
    .sort(([one], [other]) => one - other);
  const first = Math.min(...missing.flatMap((word) => begins(lower, word, 1)));
  const from = Number.isFinite(first) ? Math.max(0, first - BEFORE) : 0;
  const start = from ? text.indexOf(" ", from) + 1 : 0, end = Math.min(text.length, start + EXCERPT);
  const pieces = start ? [["… ", false]] : [];
  let at = start;
  for (const [hit, length] of hits) {
    if (hit < at || hit + length > end) continue;
    pieces.push([text.slice(at, hit), false], [text.slice(hit, hit + length), true]);
    at = hit + length;
  }
  pieces.push([text.slice(at, end) + (end < text.length ? " …" : ""), false]);
  return pieces.filter(([piece]) => piece);
}
