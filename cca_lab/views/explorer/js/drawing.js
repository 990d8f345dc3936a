/** What all of the view draws with: elements, texts of numbers and tokens, colours, the theme. */

const SVG = "http://www.w3.org/2000/svg";

/** @returns {HTMLElement} an element with attributes (a function is a listener) and children. */
function node(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** @returns {SVGElement} as `node`. */
function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** @returns {string} a share from 0 to 1 as a percentage. */
function percent(share) {
  if (share > 0 && share < 0.0005) return "< 0.1 %";
  return `${(100 * share).toFixed(share > 0.9995 || share === 0 ? 0 : 1)} %`;
}

/** @returns {string} a count with thin groups of three digits; a dash if it is not known. */
function count(number) {
  return number?.toLocaleString("en").replace(/,/g, " ") ?? "–";
}

/** @returns {string} a number of bytes. */
function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "kB", "MB", "GB"];
  const power = Math.min(3, Math.floor(Math.log10(Math.max(1, number)) / 3));
  return `${(number / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

/** @returns {string} a text with signs for its line ends and tabs. */
function signed(text) {
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥");
}

/** @returns {string} a token as one line: with signs, also for a token of spaces only. */
function visible(word) {
  return signed(word).replace(/^ +$/, (spaces) => "·".repeat(spaces.length)) || "∅";
}

/** @returns {string} a token in quotation marks, for a sentence. */
function quoted(word) {
  return `“${visible(word)}”`;
}

/** The colour of each kind of column: the lab's (figures/style.py; a test compares them). */
const KIND_COLOURS = {
  raw: "#0072B2", sink: "#56B4E9", focal: "#009E73", kept: "#8C510A",
  core: "#E69F00", group: "#E69F00", slot: "#CC79A7",
};

/** What one column of a kind is called, and several. */
const KIND_NAMES = {
  raw: ["raw token", "raw tokens"], sink: ["sink", "sinks"], focal: ["focal token", "focal tokens"],
  kept: ["kept token", "kept tokens"], core: ["core", "cores"],
  group: ["group", "groups"], slot: ["slot", "slots"],
};

/** From no weight to the largest, and from less weight than full attention's to more. */
const SCALES = {
  weights: { light: ["#FFFFFF", "#D6E8F4", "#6DB0DA", "#0072B2", "#00324F"],
    dark: ["#1B1F24", "#0F3A55", "#0072B2", "#6DB0DA", "#D6E8F4"] },
  differences: { light: ["#8C3600", "#D55E00", "#FFFFFF", "#0072B2", "#00324F"],
    dark: ["#F5A06B", "#D55E00", "#1B1F24", "#0072B2", "#9CCBE8"] },
};

/** @returns {number[]} red, green and blue, 0 to 255, at a place from 0 to 1 of a scale. */
function rgbAt(stops, place) {
  const at = Math.min(Math.max(place, 0), 1) * (stops.length - 1);
  const lower = Math.min(Math.floor(at), stops.length - 2);
  const [from, to] = [rgbOf(stops[lower]), rgbOf(stops[lower + 1])];
  return from.map((value, n) => Math.round(value + (at - lower) * (to[n] - value)));
}

/** @returns {number[]} red, green and blue of a colour such as "#0072B2". */
function rgbOf(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

/** @returns {string} a colour for CSS. */
function css(rgb) {
  return `rgb(${rgb.join(" ")})`;
}

/** @returns {string} black or white, whichever has more contrast (WCAG's relative luminance). */
function inkOn(rgb) {
  const [red, green, blue] = rgb.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#111111" : "#FFFFFF";
}

/** @returns {"light"|"dark"} JupyterLab's theme, the page's own, or that of the reader's system. */
function themeNow() {
  const lab = document.querySelector("[data-jp-theme-light]");
  if (lab) return lab.dataset.jpThemeLight === "false" ? "dark" : "light";
  const chosen = document.documentElement.dataset.scheme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Call a function whenever the theme may have changed. @returns {() => void} stops it. */
function watchTheme(changed) {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(changed);
  query.addEventListener("change", changed);
  for (const element of [document.documentElement, document.body]) {
    observer.observe(element, { attributes: true,
      attributeFilter: ["data-jp-theme-light", "data-scheme"] });
  }
  return () => {
    query.removeEventListener("change", changed);
    observer.disconnect();
  };
}
