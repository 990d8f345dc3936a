/** The columns as boxes above the tokens that they pool: lit when seen, with a bar for weight. */

const ORDER = ["slot", "group", "core", "kept", "focal", "sink", "raw"];  // from top to bottom
const TOKENS = { sink: "raw" };  // kinds that share lanes, if they do not overlap

/**
 * Put columns into lanes: from each kind's first lane on, the first in which they overlap nothing.
 *
 * @param {{kind: string, tokens: number[]}[]} columns
 * @param {number[]} shown the columns to draw.
 * @returns {{kind: string, columns: number[]}[]} lanes from top to bottom, each with the kind of
 *     its columns (of the lowest in ORDER where several share it) and the columns by first token.
 */
function lanesOf(columns, shown) {
  const byKind = new Map(ORDER.map((kind) => [kind, []]));
  const first = (column) => columns[column].tokens[0];
  const last = (column) => columns[column].tokens.at(-1);
  const ordered = [...shown].sort((a, b) => first(a) - first(b) || a - b);
  for (const kind of ["raw", ...ORDER.filter((kind) => kind !== "raw")]) {
    for (const column of ordered.filter((one) => columns[one].kind === kind)) {
      const shared = byKind.get(TOKENS[kind] ?? kind), own = byKind.get(kind);
      const apart = (other) => last(other) < first(column) || first(other) > last(column);
      const free = [...new Set([...shared, ...own])].find((lane) => lane.columns.every(apart));
      if (free) free.columns.push(column);
      else own.push({ kind, columns: [column] });
    }
  }
  return ORDER.flatMap((kind) => byKind.get(kind));
}

/** @returns {number} how many lanes the pooled columns need. */
function pooledLanes(lanes) {
  return lanes.filter(({ kind }) => isPooled(kind)).length;
}

/** @returns {boolean} whether columns of a kind hold several tokens. */
function isPooled(kind) {
  return kind === "core" || kind === "group" || kind === "slot";
}

/**
 * Merge neighbours of nearly the same weight, so that a wide column is a few rectangles.
 *
 * @returns {{start: number, end: number, level: number}[]} tokens [start, end), level from 1.
 */
function runs({ tokens, weights }, levels) {
  const largest = Math.max(...weights), merged = [];
  tokens.forEach((token, n) => {
    const level = Math.max(1, Math.ceil(levels * weights[n] / largest - 1e-9));
    const before = merged.at(-1);
    if (before && before.end === token && before.level === level) before.end++;
    else merged.push({ start: token, end: token + 1, level });
  });
  return merged;
}

const LEFT = 62, RIGHT = 8, TOP = 6, AXIS = 22;  // pixels around the lanes
const TOKEN_LANE = 46, POOLED_LANE = 38, POOLED_HEIGHT = 190, THIN = 14;
const MOST_LANES = 30;  // with more, only the columns that the query sees are drawn
const LEVELS = 6;       // shades of the pooling weights
const LEAST_WORD = 30;  // pixels for a token from which on its word is written below it
const LEAST_NUMBER = 44, TALL = 1.7;  // from which on weights are numbers, in taller lanes

let patterns = 0;

class ColumnsView {
  /**
   * @param {HTMLElement} place
   * @param {(column: ?number) => void} point is called with the column that is pointed at, or null.
   */
  constructor(place, point) {
    this.pattern = `ex-future-${++patterns}`;
    this.point = point;
    this.note = node("p", { class: "ex-note" });
    this.svg = shape("svg", { class: "ex-lanes", role: "listbox", tabindex: 0,
      "aria-label": "The columns that the query can attend to; " +
        "arrow keys go through those that it sees.",
      keydown: (event) => this.pressed(event), blur: () => point(null),
      pointerover: (event) => point(this.under(event)), pointerleave: () => point(null) });
    place.append(this.svg, this.note);
  }

  under(event) {
    const group = event.target.closest("[data-column]");
    return group ? Number(group.dataset.column) : null;
  }

  pressed(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !this.row.seen.length) return;
    event.preventDefault();
    event.stopPropagation();
    const count = this.row.seen.length, at = this.row.seen.indexOf(this.marked);
    this.point(this.row.seen[at < 0 ? (step > 0 ? 0 : count - 1) : (at + step + count) % count]);
  }

  /** Draw the columns of a state, and the row of its query. */
  draw({ columns, words, row }) {
    Object.assign(this, { columns, words, row, marked: null });
    const all = [...columns.keys()], lanes = lanesOf(columns, all);
    this.some = pooledLanes(lanes) > MOST_LANES;
    if (!this.some) this.place(lanes);
    this.light(row);
  }

  /** Draw the boxes. */
  place(lanes) {
    this.width = Math.max(260, this.svg.parentElement.clientWidth || 720);
    this.step = (this.width - LEFT - RIGHT) / this.words.length;
    const tall = this.step >= LEAST_NUMBER ? TALL : 1, pooled = Math.max(1, pooledLanes(lanes));
    const thick = Math.max(3, Math.min(tall * POOLED_LANE, POOLED_HEIGHT / pooled));
    this.groups = new Map();
    let top = TOP, above = "";
    const drawn = lanes.map(({ kind, columns }) => {
      const height = isPooled(kind) ? thick : tall * TOKEN_LANE, y = top;
      const name = kind === "raw" || kind === "sink" ? "tokens" : KIND_NAMES[kind][1].split(" ")[0];
      const label = kind === above ? null : shape("text", { x: LEFT - 8,
        y: y + Math.min(height, 24) / 2 + 8, class: "ex-lane", "text-anchor": "end" }, name);
      top += height;
      above = kind;
      return shape("g", {}, label, ...columns.map((column) => this.box(column, y, height)));
    });
    this.bottom = top;
    this.future = shape("rect", { y: TOP, height: top - TOP, class: "ex-future",
      fill: `url(#${this.pattern})` });
    this.here = shape("rect", { y: TOP - 4, height: top - TOP + 8, width: Math.max(2, this.step),
      class: "ex-here" });
    this.svg.replaceChildren(this.stripes(), this.future, ...drawn, this.here, ...this.axis());
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${top + AXIS}`);
    this.svg.setAttribute("height", top + AXIS);
  }

  stripes() {
    return shape("defs", {}, shape("pattern", { id: this.pattern, width: 6, height: 6,
      patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    shape("rect", { width: 2, height: 6, class: "ex-stripe" })));
  }

  axis() {
    const wide = this.step >= LEAST_WORD;
    const every = wide ? 1 : [5, 10, 20, 50, 100, 200].find((n) => n * this.step > 32) ?? 500;
    const name = (token) => (wide ?
      visible(this.words[token]).trim().slice(0, Math.floor(this.step / 6.5)) : String(token));
    return [...this.words.keys()].filter((token) => token % every === 0).map((token) =>
      shape("text", { x: this.x(token) + this.step / 2, y: this.bottom + 15, class: "ex-tick",
        "text-anchor": "middle" }, name(token)));
  }

  x(token) {
    return LEFT + token * this.step;
  }

  /** Make one column: its frame, the cells of its pooling weights, the bar of its weight above. */
  box(column, y, height) {
    const one = this.columns[column], thin = height < THIN, gap = thin ? 0.5 : 2;
    const inner = height - 2 * gap;
    const cells = thin ? inner : one.tokens.length === 1 ? 4 : Math.max(6, 0.3 * inner);
    const floor = y + gap + inner - cells, ceiling = thin ? floor : floor - 2;
    const x = this.x(one.tokens[0]), gutter = this.step > 3 ? 0.6 : 0;
    const width = this.x(one.tokens.at(-1) + 1) - x, drawn = Math.max(1, width - gutter);
    const levels = Array.from({ length: LEVELS }, () => "");
    for (const { start, end, level } of runs(one, LEVELS)) {
      const left = this.x(start).toFixed(2), across = (end - start) * this.step - gutter;
      levels[level - 1] += `M${left} ${floor}h${across.toFixed(2)}v${cells}H${left}z`;
    }
    const bar = thin ? null : shape("rect", { class: "ex-weight", x, width: drawn });
    const group = shape("g", { class: `ex-column ${one.kind}${thin ? " thin" : ""}`,
      "data-column": column, role: "option", id: `${this.pattern}-${column}`,
      style: `--kind: ${KIND_COLOURS[one.kind]}` },
    shape("rect", { class: "ex-frame", x, y: y + gap, width: drawn, height: inner }),
    ...levels.map((d, n) => d ?
      shape("path", { d, class: "ex-cells", "fill-opacity": (n + 1) / LEVELS }) : null),
    bar, ...this.numbers(one, floor + cells - 4, thin));
    const number = this.step < LEAST_NUMBER || thin ? null :
      shape("text", { class: "ex-number", x: x + width / 2, y: y + gap + 14 });
    if (number) group.append(number);
    this.groups.set(column, { group, bar, number, floor: ceiling, room: ceiling - y - gap });
    return group;
  }

  /** Write the pooling weights into a column's cells, if there is room. */
  numbers({ tokens, weights }, y, thin) {
    if (this.step < LEAST_NUMBER || thin || tokens.length === 1) return [];
    return tokens.map((token, n) => shape("text", { class: "ex-number",
      x: this.x(token) + this.step / 2, y }, weights[n].toFixed(2)));
  }

  /** Show another query's row: light the columns that it sees. */
  light(row) {
    this.row = row;
    if (this.some) this.place(lanesOf(this.columns, row.seen));
    const weights = new Map(row.seen.map((column, n) => [column, row.weights[n]]));
    const most = Math.max(1e-9, ...row.weights);
    for (const [column, { group, bar, number, floor, room }] of this.groups) {
      const weight = weights.get(column), share = (weight ?? 0) / most;
      group.classList.toggle("seen", weight !== undefined);
      group.setAttribute("aria-selected", String(weight !== undefined));
      group.style.setProperty("--share", Math.sqrt(share).toFixed(3));
      if (number) number.textContent = weight === undefined ? "" : weight.toFixed(2);
      if (!bar) continue;
      // roots, as in the words' shade
      const height = weight === undefined ? 0 : Math.max(1, Math.sqrt(share) * room);
      bar.setAttribute("height", height);
      bar.setAttribute("y", floor - height);
    }
    this.move(row.query);
    this.note.textContent = this.some ?
      `Only the ${row.seen.length} columns that this query sees are drawn, ` +
      `of ${this.columns.length}.` : "";
  }

  /** Move the query's mark at once. */
  move(query) {
    this.here.setAttribute("x", this.x(query));
    this.future.setAttribute("x", this.x(query + 1));
    this.future.setAttribute("width", Math.max(0, this.width - RIGHT - this.x(query + 1)));
  }

  /** Mark columns; the first one is the one that keys go on from. */
  mark(columns) {
    this.marked = columns[0] ?? null;
    for (const [column, { group }] of this.groups) {
      group.classList.toggle("marked", columns.includes(column));
    }
    const own = this.marked === null ? null : this.groups.get(this.marked);
    if (own) this.svg.setAttribute("aria-activedescendant", own.group.id);
    else this.svg.removeAttribute("aria-activedescendant");
  }
}
