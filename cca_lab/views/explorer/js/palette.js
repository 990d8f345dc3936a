/** The lab's colours (cca_lab/views/figures/style.py; a test compares them) and the words for kinds of columns. */

/** The colour of each kind of column. */
export const KIND_COLOURS = {
  raw: "#0072B2", sink: "#56B4E9", focal: "#009E73", kept: "#8C510A", core: "#E69F00", group: "#E69F00",
  slot: "#CC79A7",
};

/** What one column of a kind is called, and several. */
export const KIND_NAMES = {
  raw: ["raw token", "raw tokens"], sink: ["sink", "sinks"], focal: ["focal token", "focal tokens"],
  kept: ["kept token", "kept tokens"], core: ["core", "cores"], group: ["group", "groups"], slot: ["slot", "slots"],
};

/** From no weight to the largest, and from less weight than full attention's to more; on paper and on a dark page. */
export const SCALES = {
  weights: { light: ["#FFFFFF", "#D6E8F4", "#6DB0DA", "#0072B2", "#00324F"],
    dark: ["#1B1F24", "#0F3A55", "#0072B2", "#6DB0DA", "#D6E8F4"] },
  differences: { light: ["#8C3600", "#D55E00", "#FFFFFF", "#0072B2", "#00324F"],
    dark: ["#F5A06B", "#D55E00", "#1B1F24", "#0072B2", "#9CCBE8"] },
};

/** @returns {number[]} red, green and blue, 0 to 255, at a place from 0 to 1 of a scale. */
export function rgbAt(stops, place) {
  const at = Math.min(Math.max(place, 0), 1) * (stops.length - 1), lower = Math.min(Math.floor(at), stops.length - 2);
  const [from, to] = [rgbOf(stops[lower]), rgbOf(stops[lower + 1])];
  return from.map((value, n) => Math.round(value + (at - lower) * (to[n] - value)));
}

/** @returns {number[]} red, green and blue of a colour such as "#0072B2". */
export function rgbOf(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

/** @returns {string} a colour for CSS. */
export function css(rgb) {
  return `rgb(${rgb.join(" ")})`;
}

/** @returns {string} black or white, whichever has more contrast on a colour (WCAG's relative luminance). */
export function inkOn(rgb) {
  const [red, green, blue] = rgb.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#111111" : "#FFFFFF";
}
