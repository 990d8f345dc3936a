/** The explorer's view of the text that was read: it is asked for when the reader rests, and answers clicks. */

import { numbersOf } from "../../explorer/js/numbers.js";
import { render } from "../../explorer/js/view.js";

const REST = 250;  // milliseconds without a new answer: while a slider moves, only the answers follow it

export class Look {
  /**
   * @param {HTMLElement} place
   * @param {{layers: number, heads: number}} config of the models.
   * @param {(message: object) => void} ask sends a question about the text to the engine, see engine.js.
   */
  constructor(place, { layers, heads }, ask) {
    Object.assign(this, { place, ask, layers, heads, layer: Math.min(1, layers - 1), head: 0, query: null });
    Object.assign(this, { words: [], drawn: false, other: false, view: null, timer: 0 });
  }

  /** A text was read: its words, the mechanism (Attention of the explorer's state.js) and the model's name. */
  text(words, attention, model) {
    this.other ||= words.join("\u0000") !== this.words.join("\u0000");
    if (this.other) this.query = null;
    Object.assign(this, { words, attention, model, overview: null, drawn: false });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.again(), REST);
  }

  again() {
    this.ask({ kind: "head", layer: this.layer, head: this.head, row: this.query });
  }

  receive({ kind, layer, head, row, columns, totals, maps, overview }) {
    if (kind === "overview") {
      this.overview = overview;
      this.view?.update({ overview });
    } else if (layer === this.layer && head === this.head && (kind === "head" || this.drawn)) {
      this.columns = columns ?? this.columns;
      const own = { ...row, numbers: numbersOf(row, this.columns) };
      if (kind === "row") {
        this.view.update({ row: own });
        return;
      }
      const place = { model: this.model, layer, head, layers: this.layers, heads: this.heads };
      const { words, attention, overview: all } = this;
      this.show({ words, attention, columns, row: own, totals, maps, overview: all, place });
      if (!all) this.ask({ kind: "overview" });
    }
  }

  show(state) {
    Object.assign(this, { drawn: true, other: false });
    if (this.view) this.view.update(state);
    else {
      this.view = render(this.place, state, { onQuery: (row) => this.choose({ query: row }, "row"),
        onHead: (layer, head) => this.choose({ layer, head }, "head") });
    }
    const chosen = this.place.querySelector("[aria-selected=true]"), text = chosen?.closest(".ex-text");
    if (text) text.scrollTop = chosen.offsetTop - text.clientHeight / 2;
  }

  choose(change, kind) {
    if (kind === "row" && this.other) return;  // a word of the text before, which is still shown
    Object.assign(this, change);
    if (kind === "head" || this.drawn) this.ask({ kind, layer: this.layer, head: this.head, row: this.query });
  }
}
