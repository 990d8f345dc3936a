/**
 * The explorer's view: `render(container, state, handlers)` draws one head's reading of a text.
 *
 * A state is the JSON of `State` in state.py, which says what each field is: words, attention,
 * columns, row, totals, place, maps, overview, message, and rows, with which the view moves the
 * query by itself. Weights over tokens may be fewer than the tokens: what is left out is 0. The
 * matrices are base64 or a Uint8Array. Nothing here knows of a notebook, a model or a network: a
 * program computes a state and passes it, and answers `onQuery` with `view.update({ row })`.
 */

const MODES = { effective: "this mechanism", full: "full attention",
  difference: "their difference" };
const COLUMNS = "Columns: lit if the query sees them; bars are roots of weights";
const MOST_NAMED = 4;  // words of a column that are named

/**
 * @param {HTMLElement} container
 * @param {object} state
 * @param {object} handlers onQuery(query) is called when a word (or a row of a matrix) is chosen,
 *     onHead(layer, head) when a head of the grid is; each may be left out.
 * @returns {object} update(change) draws again with some fields replaced: `{ row }` after onQuery,
 *     a whole state after another head, mechanism or text; destroy() empties the container.
 */
function render(container, state, handlers = {}) {
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

const STEP_MS = 700;

/** A slider over the queries and a button that plays them, where a state has the rows of all. */
class Player {
  /** @param {(query: number) => void} choose */
  constructor(choose) {
    Object.assign(this, { choose, timer: null });
    this.button = node("button", { type: "button",
      click: () => (this.timer === null ? this.play() : this.stop()) }, "Play");
    this.slider = node("input", { type: "range", min: 0, "aria-label": "query",
      "data-lm-suppress-shortcuts": "true", keydown: (event) => event.stopPropagation(),
      input: () => {
        this.stop();
        choose(Number(this.slider.value));
      } });
    this.root = node("div", { class: "ex-player" }, this.button, this.slider);
  }

  draw({ rows, words, row }) {
    this.root.hidden = !rows;
    this.last = words.length - 1;
    this.slider.max = this.last;
    this.slider.value = row.query;
  }

  play() {
    if (Number(this.slider.value) === this.last) this.choose(0);
    this.button.textContent = "Stop";
    this.timer = setInterval(() => {
      const query = Number(this.slider.value);
      if (!this.root.isConnected || query === this.last) this.stop();
      else this.choose(query + 1);
    }, STEP_MS);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  }
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
    const matrices = node("div", { class: "ex-matrices" });
    const heads = node("div", { class: "ex-overview" });
    this.overviewTitle = node("h4", {}, "All heads: layers down, heads across");
    this.player = new Player((token) => this.choose(token));
    this.root = node("div", { class: "ex" }, this.title, this.message,
      node("div", { class: "ex-main" }, this.player.root, this.shades(), text, this.readout,
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
    return node("fieldset", { class: "ex-shades" },
      node("legend", {}, "Words shaded by the weights of"),
      ...Object.entries(MODES).map(([mode, title]) => node("label", {},
        node("input", { type: "radio", name, value: mode, checked: mode === this.mode,
          change: () => {
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
    this.title.replaceChildren(node("strong", {}, attention.title),
      attention.settings ? ` ${attention.settings}` : "",
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
    this.player.draw(state);
    this.scale.hidden = this.mode !== "difference";
    this.columns.light(row);
    this.matrices.move(row.query);
    showFacts(this.facts, state);
    this.say(null);
  }

  showLegend() {
    const kinds = [...new Set(this.state.columns.map(({ kind }) => kind))];
    this.legend.replaceChildren(
      ...kinds.map((kind) => node("span", { class: "ex-kind",
        style: `--kind: ${KIND_COLOURS[kind]}` }, KIND_NAMES[kind][1])),
      node("span", { class: "ex-kind unlit" }, "not seen by this query"),
      node("span", { class: "ex-kind lost" }, "word in no seen column"));
  }

  pointAtWord(token) {
    const { row, columns } = this.state, past = token !== null && token <= row.query;
    this.words.mark(null);
    const holds = (column) => columns[column].tokens.includes(token);
    this.columns.mark(past ? row.seen.filter(holds) : []);
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

/** @returns {?object[]} the seen column that gives each token most weight; null if none does. */
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

// ---------------------------------------------------------------- sentences and facts

/** @returns {string} what the query sees. */
function aboutQuery({ row, columns, words }) {
  const counts = new Map();
  for (const { kind } of row.seen.map((column) => columns[column])) {
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const counted = [...counts].map(([kind, n]) => `${n} ${KIND_NAMES[kind][n === 1 ? 0 : 1]}`);
  const last = counted.pop(), all = [counted.join(", "), last].filter(Boolean).join(" and ");
  return `The query ${quoted(words[row.query])}, token ${row.query}, sees ${all}.`;
}

/** @returns {string} the weight of a word, and through which column it is read. */
function aboutWord({ row, columns, words }, token) {
  const name = `${quoted(words[token])}, token ${token}`;
  if (token > row.query) return `${name}, is later than the query`;
  const own = row.seen.filter((column) => columns[column].tokens.includes(token)).map((column) => {
    const { kind, tokens, weights } = columns[column], what = KIND_NAMES[kind][0];
    const factors = [weightOf(row, column), weights[tokens.indexOf(token)]];
    const how = tokens.length === 1 ? `read as a ${what}` :
      `read in a ${what}: ${factors.map(percent).join(" × ")}`;
    return { how, weight: factors[0] * factors[1] };
  }).sort((a, b) => b.weight - a.weight);
  const more = own.length > 1 ? `, and in ${own.length - 1} more columns` : "";
  const [here, full] = [row.effective, row.full].map((weights) => percent(weights[token] ?? 0));
  const how = own.length ? own[0].how : "not read";
  return `${name}: weight ${here}, in full attention ${full}; ${how}${more}`;
}

/** @returns {string} the weight of a column, and the words that it pools. */
function aboutColumn({ row, columns, words }, column) {
  const { kind, tokens, weights } = columns[column], [name] = KIND_NAMES[kind];
  const largest = tokens.map((token, n) => ({ token, weight: weights[n] }))
    .sort((a, b) => b.weight - a.weight);
  const named = largest.slice(0, MOST_NAMED).map(({ token, weight }) =>
    `${quoted(words[token])} ${percent(weight)}`);
  const what = tokens.length === 1 ? quoted(words[tokens[0]]) :
    `${tokens.length} tokens: ${named.join(", ")}${tokens.length > MOST_NAMED ? ", …" : ""}`;
  const seen = row.seen.includes(column) ? `weight ${percent(weightOf(row, column))}` :
    "not seen by this query";
  return `${name[0].toUpperCase()}${name.slice(1)}, ${seen}: ${what}`;
}

/** @returns {number} the weight of a seen column, never quite 0: JSON has rounded it. */
function weightOf(row, column) {
  return Math.max(row.weights[row.seen.indexOf(column)], Number.MIN_VALUE);
}

/** Write the facts of a state into a list. */
function showFacts(list, { row, totals, columns }) {
  const { numbers, query, seen } = row;
  const pooled = seen.filter((column) => columns[column].tokens.length > 1).length;
  list.replaceChildren(
    fact("weight lost", percent(numbers.lost), "full attention's, on tokens in no seen column",
      numbers.lost),
    fact("weight moved", percent(numbers.distance), "total variation from full attention",
      numbers.distance),
    fact("tokens for 90 %", count(numbers.k90), `full attention needs ${count(numbers.k90Full)}`),
    fact("entropy", numbers.entropy.toFixed(2),
      `nats; full attention ${numbers.entropyFull.toFixed(2)}`),
    fact("columns read", count(seen.length),
      `of ${count(query + 1)} tokens${pooled ? `; ${pooled} pool several` : ""}`,
      seen.length / (query + 1)),
    saving("pairs", totals.pairs, totals.pairsFull, count, "whole text"),
    cacheFact(totals));
}

function cacheFact({ bytes: own, bytesFull, entries, entriesFull }) {
  if (entries === null) {
    return fact("cache", "–", "none of its own: it decodes with full attention's");
  }
  const known = own !== null && own !== undefined;
  return known ? saving("cache", own, bytesFull, bytes, "one layer") :
    saving("cache", entries, entriesFull, count, "entries");
}

/** @returns {HTMLElement} a cost beside full attention's. */
function saving(name, own, full, written, what) {
  const times = full > own ? `: ${(full / own).toFixed(1)} times less` : "";
  return fact(name, written(own), `${what}, of ${written(full)}${times}`, own / full);
}

/** @returns {HTMLElement} a name, a value, a remark, and a bar if there is a share from 0 to 1. */
function fact(name, value, remark, share = null) {
  return node("div", { class: "ex-fact", role: "listitem" }, node("span", {}, name), " ",
    node("strong", {}, value), " ", node("small", {}, remark), share === null ? null :
      node("i", { class: "ex-share", style: `--share: ${Math.min(1, share)}`,
        "aria-hidden": "true" }));
}
