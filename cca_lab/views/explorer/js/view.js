/**
 * The explorer's view: `render(container, state, handlers)` draws one head's reading of a text, for any mechanism.
 *
 * The contract (State, Handlers and View) is in state.js; the style sheet is ../view.css. Nothing here knows of a
 * notebook, of a model or of a network: a program computes a state and passes it, and answers `onQuery` with
 * `view.update({ row })`.
 */

import { ColumnsView } from "./columns_view.js";
import { node } from "./dom.js";
import { showFacts } from "./facts.js";
import { Heads, Matrices } from "./matrices.js";
import { KIND_COLOURS, KIND_NAMES } from "./palette.js";
import { aboutColumn, aboutQuery, aboutWord } from "./sentences.js";
import { themeNow, watchTheme } from "./theme.js";
import { Words } from "./words.js";

const MODES = { effective: "this mechanism", full: "full attention", difference: "their difference" };
const COLUMNS = "Columns: lit if the query sees them; bars are roots of weights";

/**
 * @param {HTMLElement} container
 * @param {object} state State of state.js
 * @param {object} handlers Handlers of state.js
 * @returns {object} View of state.js
 */
export function render(container, state, handlers = {}) {
  const view = new ExplorerView(state, handlers);
  container.append(view.root);
  view.drawAll();
  const stop = [watchTheme(() => view.drawAll()), watchWidth(view.root, () => view.drawAll())];
  return {
    update: (change) => view.update(change),
    destroy: () => {
      stop.forEach((end) => end());
      view.root.remove();
    },
  };
}

function watchWidth(element, changed) {
  let width = element.clientWidth;
  const observer = new ResizeObserver(() => {
    if (Math.abs(element.clientWidth - width) < 2) return;
    width = element.clientWidth;
    changed();
  });
  observer.observe(element);
  return () => observer.disconnect();
}

class ExplorerView {
  constructor(state, handlers) {
    Object.assign(this, { state, handlers, mode: "effective", written: null });
    this.message = node("p", { class: "ex-message", role: "status" });
    this.title = node("p", { class: "ex-title" });
    this.readout = node("p", { class: "ex-readout", "aria-live": "polite" });
    this.scale = node("small", {}, "blue: more weight than in full attention, orange: less");
    this.legend = node("p", { class: "ex-legend" });
    this.facts = node("div", { class: "ex-facts", role: "list" });
    const text = node("div", { class: "ex-text" }), lanes = node("div", { class: "ex-columns" });
    const matrices = node("div", { class: "ex-matrices" }), heads = node("div", { class: "ex-overview" });
    this.overviewTitle = node("h4", {}, "All heads: layers down, heads across");
    this.root = node("div", { class: "ex" }, this.title, this.message,
      node("div", { class: "ex-main" }, this.shades(), text, this.readout,
        node("h4", {}, COLUMNS), lanes, this.legend, matrices),
      node("div", { class: "ex-side" }, node("h4", {}, "Against full attention"), this.facts,
        this.overviewTitle, heads));
    this.words = new Words(text, (token) => this.choose(token), (token) => this.pointAtWord(token));
    this.columns = new ColumnsView(lanes, (column) => this.pointAtColumn(column));
    this.matrices = new Matrices(matrices, (token) => this.choose(token));
    this.heads = new Heads(heads, (layer, head) => this.handlers.onHead?.(layer, head));
  }

  shades() {
    const name = `ex-mode-${Math.random().toString(36).slice(2)}`;
    return node("fieldset", { class: "ex-shades" }, node("legend", {}, "Words shaded by the weights of"),
      ...Object.entries(MODES).map(([mode, title]) => node("label", {}, node("input", { type: "radio", name,
        value: mode, checked: mode === this.mode, change: () => {
          this.mode = mode;
          this.drawRow();
        } }), node("span", {}, title))), this.scale);
  }

  update(change) {
    const rowOnly = Object.keys(change).every((key) => key === "row");
    this.state = { ...this.state, ...change };
    if (rowOnly) this.drawRow();
    else this.drawAll();
  }

  choose(query) {
    const own = this.state.rows?.[query];
    if (own) this.update({ row: own });
    else {
      this.words.move(query);
      this.columns.move(query);
    }
    this.handlers.onQuery?.(query);
  }

  drawAll() {
    const { state } = this, { attention, place, words, message } = state;
    this.theme = themeNow();
    this.root.dataset.theme = this.theme;
    this.root.classList.toggle("narrow", this.root.clientWidth < 860);
    this.title.replaceChildren(node("strong", {}, attention.title), attention.settings ? ` ${attention.settings}` : "",
      place ? node("span", {}, `${place.model}, layer ${place.layer}, head ${place.head}`) : "");
    this.message.textContent = message ?? "";
    this.message.hidden = !message;
    if (this.written !== words.join("\u0000")) {
      this.words.write(words);
      this.written = words.join("\u0000");
    }
    this.columns.draw(state);
    this.matrices.draw(state, this.theme);
    this.heads.draw(state, this.theme);
    this.overviewTitle.hidden = !state.overview || !place;
    this.showLegend();
    this.drawRow();
  }

  drawRow() {
    const { state } = this, { row, columns } = state;
    this.through = columnOfEach(row, columns, state.words.length);
    this.words.shade(row, this.through, this.mode, this.theme);
    this.scale.hidden = this.mode !== "difference";
    this.columns.light(row);
    this.matrices.move(row.query);
    showFacts(this.facts, state);
    this.say(null);
  }

  showLegend() {
    const kinds = [...new Set(this.state.columns.map(({ kind }) => kind))];
    this.legend.replaceChildren(...kinds.map((kind) => node("span", { class: "ex-kind",
      style: `--kind: ${KIND_COLOURS[kind]}` }, KIND_NAMES[kind][1])), node("span", { class: "ex-kind unlit" },
    "not seen by this query"), node("span", { class: "ex-kind lost" }, "word in no seen column"));
  }

  pointAtWord(token) {
    const { row, columns } = this.state, past = token !== null && token <= row.query;
    this.words.mark(null);
    this.columns.mark(past ? row.seen.filter((column) => columns[column].tokens.includes(token)) : []);
    this.say(token === null ? null : aboutWord(this.state, token));
  }

  pointAtColumn(column) {
    this.words.mark(column === null ? null : this.state.columns[column]);
    this.columns.mark(column === null ? [] : [column]);
    this.say(column === null ? null : aboutColumn(this.state, column));
  }

  /** Say something about what is pointed at; null for the query itself. */
  say(text) {
    this.readout.textContent = text ?? aboutQuery(this.state);
  }
}

/** @returns {?object[]} for each token the seen column that gives it most weight; null if none holds it. */
function columnOfEach(row, columns, length) {
  const best = Array(length).fill(null), most = new Float64Array(length).fill(-1);
  row.seen.forEach((column, n) => {
    columns[column].tokens.forEach((token, m) => {
      const weight = row.weights[n] * columns[column].weights[m];
      if (weight > most[token]) [best[token], most[token]] = [columns[column], weight];
    });
  });
  return best;
}
