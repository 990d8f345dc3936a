/** The page: it turns settings into a job for the engine, and its messages into what is seen. */

// Documents asked for at each offset; fewer where every question reads the whole text anew.
const EACH = { causal: 16, other: 5 };
const ON_GROUPS = ["cca", "mean_pooling", "random_tokens"];  // of g tokens each, from token 0 on
const OWN = `def read_lines(path):
    """Return the lines of a file."""
    with open(path) as file:
`;

function start() {
  try {
    new App(JSON.parse(element("data").textContent));
  } catch (error) {
    element("problem").hidden = false;
    element("problem").textContent =
      `This page does not run in this browser (${error.message}); take a newer one.`;
    throw error;
  }
}

class App {
  constructor(data) {
    this.data = data;
    this.config = data.packed.config;
    this.tokenizer = new Tokenizer(data.vocabulary);
    this.decode = (ids) => this.tokenizer.decode(ids);
    this.version = 0;
    this.remembered = Object.fromEntries(data.mechanisms.map(({ name, options }) => [
      name, Object.fromEntries(options.map((option) => [option.name, option.value]))]));
    Object.assign(this.remembered[data.start.mechanism], data.start.options);
    this.settings = { model: 0, mechanism: data.start.mechanism, source: "documents", kind: 0,
      offset: 0, asked: 12, seed: 1, own: OWN,
      options: { ...this.remembered[data.start.mechanism] } };
    fill(data);
    this.look = new Look(element("look"), this.config, (message) => this.send(message));
    makeStrip(data.questions.offsets, (offset) => this.change({ offset }));
    this.listen();
    this.send = connect(data.packed, (message) => this.receive(message));
    this.submit();
  }

  listen() {
    const form = element("controls"), again = () => {
      this.settings = read(this.settings, this.data, this.remembered);
      this.submit();
    };
    form.addEventListener("input", again);
    form.addEventListener("submit", (event) => event.preventDefault());
    element("other").addEventListener("click", () => this.change({ seed: this.settings.seed + 1 }));
    element("write").addEventListener("click", () => this.submit(24));
    element("presets").append(...presets(this.data).map(({ title, hint, ...changes }) =>
      node("button", { type: "button", click: () => {
        element("hint").textContent = hint;
        Object.assign(this.remembered[changes.mechanism], changes.options);
        this.change({ ...changes, options: { ...this.remembered[changes.mechanism] } });
      } }, title)));
  }

  change(changes) {
    this.settings = { ...this.settings, ...changes };
    this.submit();
  }

  /** Send the job of the present settings; `write` tokens are written after one's own text. */
  submit(write = 0) {
    const { model, mechanism, options, source, kind, seed } = this.settings;
    const { questions, mechanisms } = this.data;
    this.version += 1;
    if (this.drawn !== `${kind} ${seed}`) {
      this.documents = draw(questions, kind, this.config.positions, seed);
      this.drawn = `${kind} ${seed}`;
      makeGrid(this.documents, this.decode, (asked) => this.change({ asked }));
    }
    this.settings.asked = Math.min(this.settings.asked, this.documents.length - 1);
    show(this.settings, this.data, this.documents.length);
    const asks = source === "own" ? this.ownText() : this.documentQuestions();
    if (asks[0].ids.length === 0) return this.empty();
    document.body.classList.add("waiting");
    this.first = asks[0];
    const { fixed } = mechanisms.find(({ name }) => name === mechanism);
    this.send({ kind: "job", version: this.version, model, mechanism,
      options: { ...options, ...fixed }, asks, write });
  }

  /** The mechanism as the explorer's view names it. */
  attention() {
    const { mechanism, options } = this.settings;
    const { name, title } = this.data.mechanisms.find((one) => one.name === mechanism);
    return { name, title,
      settings: Object.entries(options).map((pair) => pair.join(" ")).join(", ") };
  }

  empty() {
    document.body.classList.remove("waiting");
    Object.assign(element("verdict"), { textContent: "Write something first.", className: "" });
    element("continuations").replaceChildren();
  }

  ownText() {
    const all = this.tokenizer.encode(this.settings.own), ids = all.slice(-this.config.positions);
    const left = all.length - ids.length;
    element("question").textContent = left ?
      `Your text has ${all.length} tokens; the model reads ${ids.length}, ` +
      `and the first ${left} are left out.` :
      `Your text has ${ids.length} tokens of the ${this.config.positions} that the model reads.`;
    this.written = [];
    return [{ key: "own", ids, answer: null }];
  }

  /** The chosen question, then what is not known yet: all at this offset, some at the others. */
  documentQuestions() {
    const { offset, asked, model, mechanism, options } = this.settings, { questions } = this.data;
    const setting = JSON.stringify([this.drawn, model, mechanism, options]);
    const causal = !(mechanism === "dga" && options.choose === "prompt");
    const offsets = range(0, questions.offsets), all = range(0, this.documents.length);
    if (this.setting !== setting) {
      this.setting = setting;
      this.results = offsets.map(() => new Map());
      this.some = spread(all.length, causal ? EACH.causal : EACH.other);
    }
    this.showResults();
    element("offsets-note").textContent =
      `Percent of ${this.some.length} documents, from the first to the last, ` +
      "each asked for at each offset. Groups begin at token 0, so the documents move through them.";
    const group = ON_GROUPS.includes(mechanism) ? options.group : 0;
    showCut(this.documents, asked, offset, group, this.decode);
    const { ids, at } = this.documents[asked];
    element("question").textContent =
      `${this.decode(ids.slice(0, at))} …   (document ${asked + 1} of ${all.length})`;
    const ask = (place, n) =>
      ({ key: [place, n], ...question(questions.before, this.documents, place, n) });
    const missing = (place, wanted) =>
      wanted.filter((n) => !this.results[place].has(n)).map((n) => ask(place, n));
    const others = (causal ? all : this.some).filter((n) => n !== asked);
    return [ask(offset, asked), ...missing(offset, others),
      ...offsets.filter((place) => place !== offset).flatMap((place) => missing(place, this.some))];
  }

  showResults() {
    const { offset, asked } = this.settings;
    showGrid(this.results[offset], this.documents, asked, this.decode);
    showStrip(this.results, this.some, offset);
  }

  receive(message) {
    if (message.version !== this.version) return;
    if (message.kind === "first") {
      document.body.classList.remove("waiting");
      const wanted = this.first.answer === null ? null : this.decode([this.first.answer]);
      showAnswer(message, this.first.ids.length, this.decode, wanted);
      const words = this.first.ids.map((id) => this.decode([id]));
      this.look.text(words, this.attention(), this.data.models[this.settings.model].name);
    }
    if (["head", "row", "overview"].includes(message.kind)) this.look.receive(message);
    if (message.kind === "written") {
      this.written.push(message.id);
      element("question").textContent = `It writes: ${this.decode(this.written)}`;
    }
    if (Array.isArray(message.key)) {
      const [offset, n] = message.key;
      this.results[offset].set(n, message.right);
      this.showResults();
    }
  }
}

// ---------------------------------------------------------------- the engine and the view

/**
 * Start the engine in a thread of its own, or, where a browser forbids that, in this one.
 * @param {object} packed the weights, see `unpack`.
 * @param {(message: object) => void} receive takes what the engine sends.
 * @returns {(message: object) => void} sends a message to the engine.
 */
function connect(packed, receive) {
  const sent = [];
  let send = (message) => sent.push(message);
  const here = () => {
    send = engine(packed, receive);
    sent.forEach((message) => send(message));
  };
  try {
    const source = new Blob([element("program").textContent], { type: "text/javascript" });
    const worker = new Worker(URL.createObjectURL(source));
    worker.onmessage = ({ data }) => receive(data);
    worker.onerror = here;
    worker.postMessage(packed);
    send = (message) => { sent.splice(0, sent.length, message); worker.postMessage(message); };
  } catch {
    here();
  }
  return (message) => send(message);
}

const REST = 250;  // milliseconds without an answer: while a slider moves, only answers follow it

/** The explorer's view of the text that was read, asked for when the reader rests. */
class Look {
  /**
   * @param {HTMLElement} place
   * @param {{layers: number, heads: number}} config of the models.
   * @param {(message: object) => void} ask sends the engine a question about the text.
   */
  constructor(place, { layers, heads }, ask) {
    Object.assign(this, { place, ask, layers, heads, layer: Math.min(1, layers - 1), head: 0,
      query: null, words: [], drawn: false, other: false, view: null, timer: 0 });
  }

  /** A text was read: its words, the mechanism (`attention` of the state), the model's name. */
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
    const chosen = this.place.querySelector("[aria-selected=true]");
    const text = chosen?.closest(".ex-text");
    if (text) text.scrollTop = chosen.offsetTop - text.clientHeight / 2;
  }

  choose(change, kind) {
    if (kind === "row" && this.other) return;  // a word of the text before, which is still shown
    Object.assign(this, change);
    const { layer, head, query } = this;
    if (kind === "head" || this.drawn) this.ask({ kind, layer, head, row: query });
  }
}
