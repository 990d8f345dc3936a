/** What each row reads, in motion: a slider, a button that plays, and the tokens of the row. */

const STEP_MS = 700, CELL_MOST = 46, LANE_HIGH = 18, TOKEN_HIGH = 26, SIDE = 4;

/** @returns {Element} an element, of SVG where `svg` says so, with attributes and children. */
function made(name, attributes, children = [], svg = false) {
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) :
    document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/**
 * Replace what stands in a place by a view that moves.
 *
 * @param {HTMLElement} place
 * @param {object} data of `Moving.data` in Python.
 */
function showMoving(place, data) {
  const count = data.words.length, last = count - 1;
  const cell = Math.min(CELL_MOST, 880 / count), floor = data.lanes * LANE_HIGH + SIDE;
  const width = 2 * SIDE + count * cell, height = floor + TOKEN_HIGH + 18;
  const svg = made("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img",
    style: `max-width: ${width}px; display: block; margin: 6px 0` }, [], true);
  const slider = made("input", { type: "range", min: 0, max: last, value: 0,
    "aria-label": "row", style: "width: 320px; max-width: 60%" });
  const play = made("button", { type: "button" }, ["Play"]);
  const said = made("p", { "aria-live": "polite", style: "margin: 2px 0; min-height: 2.6em" });
  const box = (x, y, wide, high, fill, more = {}) => made("rect",
    { x, y, width: Math.max(1, wide), height: high, fill, rx: 2, ...more }, [], true);
  const left = (token) => SIDE + token * cell;
  let timer = null;

  function draw() {
    const row = Number(slider.value), { tokens, columns, text } = data.rows[row];
    const parts = [];
    for (const number of columns) {
      const { kind, tokens: held, lane } = data.columns[number];
      const y = floor - (lane + 1) * LANE_HIGH, fill = data.colours[kind];
      const ends = [left(held[0]) + 1, left(held.at(-1) + 1) - 1];
      parts.push(box(ends[0], y + 6, ends[1] - ends[0], 2, fill, { "data-column": number }));
      for (const token of held) parts.push(box(left(token) + 1, y + 1, cell - 2, 13, fill));
    }
    data.words.forEach((word, token) => {
      const kind = tokens[token], raw = kind && kind in data.colours;
      const fill = raw ? data.colours[kind] : "rgba(128, 128, 128, 0.15)";
      parts.push(box(left(token) + 1, floor, cell - 2, TOKEN_HIGH, fill, {
        "data-kind": kind || "future", opacity: kind ? 1 : 0.35,
        ...(token === row ? { stroke: "currentColor", "stroke-width": 2 } : {}) }));
      if (cell < 20) return;
      parts.push(made("text", { x: left(token) + cell / 2, y: floor + 17, "text-anchor": "middle",
        "font-size": 11, "font-family": "sans-serif", fill: raw ? "#fff" : "currentColor",
        opacity: kind ? 1 : 0.45 }, [word.slice(0, Math.floor(cell / 6.5))], true));
    });
    svg.replaceChildren(...parts);
    svg.setAttribute("aria-label", text);
    said.textContent = text;
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  function step() {
    if (!place.isConnected || Number(slider.value) === last) return stop();
    slider.value = Number(slider.value) + 1;
    return draw();
  }

  slider.addEventListener("input", () => { stop(); draw(); });
  slider.addEventListener("keydown", (event) => event.stopPropagation());
  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (Number(slider.value) === last) slider.value = 0;
    draw();
    play.textContent = "Stop";
    timer = setInterval(step, STEP_MS);
    return undefined;
  });
  const legend = made("p", { style: "margin: 2px 0; font-size: 0.85em" },
    Object.entries(data.names).map(([kind, name]) => made("span", { style: "margin-right: 14px" }, [
      made("span", { style: "display: inline-block; width: 10px; height: 10px; " +
        `margin-right: 4px; background: ${data.colours[kind]}` }), name])));
  place.replaceChildren(made("div", { "data-lm-suppress-shortcuts": "true" },
    [made("strong", {}, [data.title]), made("div", {}, [play, " ", slider]), svg, said, legend]));
  draw();
}
