/** Matrices of attention on canvases: of the head that is shown, and small ones of all heads. */

/** @returns {Uint8Array} bytes that may have come as base64. */
function bytesOf(given) {
  if (typeof given !== "string") return given;
  return Uint8Array.from(atob(given), (letter) => letter.charCodeAt(0));
}

/** Paint a matrix, one pixel for each entry; rows are queries, later tokens are left clear. */
function paint(canvas, values, size, theme) {
  canvas.width = canvas.height = size;
  const context = canvas.getContext("2d"), image = context.createImageData(size, size);
  const colours = Array.from({ length: 256 },
    (_, value) => rgbAt(SCALES.weights[theme], value / 255));
  for (let row = 0; row < size; row++) {
    for (let column = 0; column <= row; column++) {
      const at = row * size + column;
      image.data.set([...colours[values[at]], 255], 4 * at);
    }
  }
  context.putImageData(image, 0, 0);
}

/** The mechanism's matrix of one head and full attention's; a click on a row makes it the query. */
class Matrices {
  constructor(place, choose) {
    this.choose = choose;
    this.own = this.canvas("this mechanism: a query a row");
    this.full = this.canvas("full attention");
    place.append(this.own.figure, this.full.figure);
  }

  canvas(title) {
    const canvas = node("canvas", { class: "ex-matrix", "aria-hidden": "true" });
    const line = node("div", { class: "ex-line" });
    const frame = node("div", { class: "ex-frame-of-matrix", click: (event) => {
      const box = frame.getBoundingClientRect();
      const row = Math.floor((event.clientY - box.top) / box.height * this.length);
      this.choose(Math.min(Math.max(row, 0), this.length - 1));
    } }, canvas, line);
    return { canvas, line, figure: node("figure", {}, node("figcaption", {}, title), frame) };
  }

  draw({ maps, words, row }, theme) {
    this.length = words.length;
    for (const { figure } of [this.own, this.full]) figure.hidden = !maps;
    if (!maps) return;
    paint(this.own.canvas, bytesOf(maps.own), maps.size, theme);
    paint(this.full.canvas, bytesOf(maps.full), maps.size, theme);
    this.move(row.query);
  }

  move(query) {
    for (const { line } of [this.own, this.full]) {
      line.style.top = `${100 * query / this.length}%`;
      line.style.height = `${100 / this.length}%`;
    }
  }
}

/** A thumbnail of every head, layer by layer; a click or the keyboard chooses one. */
class Heads {
  constructor(place, choose) {
    this.choose = choose;
    this.grid = node("div", { class: "ex-heads", role: "group",
      "aria-label": "All heads; arrow keys move between them",
      keydown: (event) => this.pressed(event) });
    place.append(this.grid);
  }

  /** Draw the thumbnails; a grid of the same shape keeps its buttons, and so the focus. */
  draw({ overview, place }, theme) {
    this.grid.hidden = !overview || !place;
    if (this.grid.hidden) return;
    const { layers, heads, size, maps, distances } = overview, values = bytesOf(maps);
    if (this.heads !== heads || this.buttons.length !== layers * heads) this.make(layers, heads);
    this.buttons.forEach((button, n) => {
      paint(button.firstChild, values.subarray(n * size * size, (n + 1) * size * size), size,
        theme);
      button.lastChild.style.width = percent(distances[n]).replace("< ", "").replace(" ", "");
      const layer = Math.floor(n / heads), head = n % heads;
      const current = layer === place.layer && head === place.head;
      button.title =
        `layer ${layer}, head ${head}: ${percent(distances[n])} of the weight is moved, on average`;
      button.setAttribute("aria-label", button.title);
      button.setAttribute("aria-pressed", String(current));
      button.tabIndex = current ? 0 : -1;
    });
  }

  make(layers, heads) {
    this.heads = heads;
    this.buttons = Array.from({ length: layers * heads }, (_, n) =>
      node("button", { type: "button", class: "ex-head",
        click: () => this.choose(Math.floor(n / heads), n % heads) },
      node("canvas"), node("span", { class: "ex-distance" })));
    this.grid.style.setProperty("--heads", heads);
    this.grid.replaceChildren(...Array.from({ length: layers }, (_, layer) => [
      node("span", { class: "ex-layer" }, String(layer)),
      ...this.buttons.slice(layer * heads, (layer + 1) * heads)]).flat());
  }

  pressed(event) {
    const at = this.buttons.indexOf(event.target.closest("button"));
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.heads,
      ArrowDown: this.heads }[event.key];
    const next = this.buttons[at + step];
    if (at < 0 || step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (!next) return;
    next.focus();
    next.click();
  }
}
