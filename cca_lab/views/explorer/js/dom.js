/** Small functions that make elements, and texts for numbers and tokens. */

const SVG = "http://www.w3.org/2000/svg";

/** @returns {HTMLElement} an element with attributes (a function is a listener) and children (null ones left out). */
export function node(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** @returns {SVGElement} as `node`. */
export function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** @returns {string} a share from 0 to 1 as a percentage. */
export function percent(share) {
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  return `${(100 * share).toFixed(share > 0.9995 || share === 0 ? 0 : 1)} %`;
}

/** @returns {string} a count with thin groups of three digits; a dash if it is not known. */
export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en").replace(/,/g, " ");
}

/** @returns {string} a number of bytes. */
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "kB", "MB", "GB"], power = Math.min(3, Math.floor(Math.log10(Math.max(1, number)) / 3));
  return `${(number / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

/** @returns {string} a token as one line: signs for line ends and tabs, and for a token of spaces only. */
export function visible(word) {
  const signs = word.replace(/\n/g, "↵").replace(/\t/g, "⇥");
  return signs.replace(/^ +$/, (spaces) => "·".repeat(spaces.length)) || "∅";
}

/** @returns {string} a token in quotation marks, for a sentence. */
export function quoted(word) {
  return `“${visible(word)}”`;
}
