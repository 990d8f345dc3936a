/** The text: each word shaded by a weight, and underlined in the colour of its column. */

const FEW = 16;  // words of an example of hand size, which are written large
let made = 0;  // lists of words on this page, for their ids

class Words {
  /**
   * @param {HTMLElement} place
   * @param {(token: number) => void} choose is called with the word that becomes the query.
   * @param {(token: ?number) => void} point is called with the word under the pointer, or null.
   */
  constructor(place, choose, point) {
    this.id = `ex-words-${++made}`;
    this.choose = choose;
    this.query = 0;
    this.spans = [];
    this.list = node("div", { class: "ex-words", role: "listbox", tabindex: 0,
      "aria-orientation": "horizontal",
      "aria-label": "The text. The chosen word is the query; arrow keys move it.",
      keydown: (event) => this.pressed(event),
      click: (event) => this.at(event, choose),
      pointerover: (event) => this.at(event, point),
      pointerleave: () => point(null) });
    place.append(this.list);
  }

  at(event, act) {
    const span = event.target.closest("[data-token]");
    if (span) act(Number(span.dataset.token));
  }

  pressed(event) {
    const last = this.spans.length - 1;
    const next = { ArrowLeft: this.query - 1, ArrowRight: this.query + 1, Home: 0, End: last,
      ArrowUp: this.aboveOrBelow(-1), ArrowDown: this.aboveOrBelow(1) }[event.key];
    if (next === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();  // JupyterLab would move to another cell
    if (next >= 0 && next <= last && next !== this.query) this.choose(next);
  }

  /** @returns {number} the word above (-1) or below (1) the query's. */
  aboveOrBelow(direction) {
    const own = this.spans[this.query].getBoundingClientRect(), middle = own.left + own.width / 2;
    let best = this.query, least = Infinity;
    this.spans.forEach((span, token) => {
      const box = span.getBoundingClientRect(), down = direction * (box.top - own.top);
      if (down < own.height / 2) return;
      const distance = 1000 * down + Math.abs(box.left + box.width / 2 - middle);
      if (distance < least) [best, least] = [token, distance];
    });
    return best;
  }

  /** Write another text. */
  write(words) {
    this.words = words;
    this.list.classList.toggle("few", words.length <= FEW);
    let indent = 0;  // spaces that a token has after its line end: they stand before the next token
    this.spans = words.map((word, token) => {
      const span = node("span", { class: "ex-word", role: "option", "data-token": token,
        id: `${this.id}-${token}`, style: indent ? `margin-left: ${indent}ch` : null },
      visible(word.replace(/\n +$/, "\n")));
      indent = word.match(/\n( +)$/)?.[1].length ?? 0;
      return span;
    });
    this.list.replaceChildren(...this.spans.flatMap((span, token) =>
      words[token].includes("\n") ? [span, node("br")] : [span]));
  }

  /** Move the query at once, before its weights are there. */
  move(query) {
    this.spans[this.query]?.removeAttribute("aria-selected");
    this.query = query;
    this.spans[query].setAttribute("aria-selected", "true");
    this.list.setAttribute("aria-activedescendant", this.spans[query].id);
  }

  /**
   * Shade the words.
   * @param {object} row of the state.
   * @param {?{kind: string}[]} through the column that gives each token most weight, or null.
   * @param {"effective"|"full"|"difference"} mode what the shade shows.
   * @param {"light"|"dark"} theme
   */
  shade(row, through, mode, theme) {
    this.move(row.query);
    const scale = mode === "difference" ? "differences" : "weights";
    const shades = shadesOf(row, mode), stops = SCALES[scale][theme];
    this.spans.forEach((span, token) => {
      const future = token > row.query, clear = mode === "difference" ? 0.5 : 0;
      const colour = rgbAt(stops, future ? clear : shades[token]), column = through[token];
      span.className = `ex-word${future ? " future" : through[token] ? "" : " unread"}`;
      span.style.backgroundColor = css(colour);
      span.style.color = future ? "" : inkOn(colour);
      span.style.borderBottomColor = !future && column ? KIND_COLOURS[column.kind] : "";
      const what = future ? "later than the query" : `weight ${percent(row.effective[token] ?? 0)}`;
      const unread = future || column ? "" : ", not read";
      span.setAttribute("aria-label",
        `${quoted(this.words[token])}, token ${token}, ${what}${unread}`);
    });
  }

  /** Mark the words of a column, each by its share of it; null for none. */
  mark(column) {
    this.spans.forEach((span) => span.style.removeProperty("box-shadow"));
    if (!column) return;
    const largest = Math.max(...column.weights);
    column.tokens.forEach((token, n) => {
      const height = 0.15 + 1.05 * (column.weights[n] / largest);
      this.spans[token].style.boxShadow =
        `inset 0 -${height.toFixed(2)}em 0 ${KIND_COLOURS[column.kind]}aa, ` +
        `0 0 0 1px ${KIND_COLOURS[column.kind]}`;
    });
  }
}

/** @returns {number[]} each token's place on the scale: roots of weights, to see small ones. */
function shadesOf({ query, effective, full }, mode) {
  const tokens = Array.from({ length: query + 1 },
    (_, token) => [effective[token] ?? 0, full[token] ?? 0]);
  if (mode === "difference") {
    const differences = tokens.map(([own, other]) => own - other);
    const most = Math.max(1e-9, ...differences.map(Math.abs));
    const root = (x) => Math.sign(x) * Math.sqrt(Math.abs(x) / most);
    return differences.map((difference) => 0.5 + 0.5 * root(difference));
  }
  const most = Math.max(1e-9, ...tokens.flat());  // one scale for both: they can be compared
  return tokens.map(([own, other]) => Math.sqrt((mode === "full" ? other : own) / most));
}
