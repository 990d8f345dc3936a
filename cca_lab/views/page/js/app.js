/** The page: it turns settings into a job for the engine, and the engine's messages into what is seen. */

import { range } from "./columns.js";
import { connect } from "./connect.js";
import { element, fill, make, presets, read, show } from "./controls.js";
import { Look } from "./look.js";
import { draw, question, spread } from "./questions.js";
import { makeGrid, makeStrip, showAnswer, showCut, showGrid, showStrip } from "./show.js";
import { Tokenizer } from "./tokenizer.js";

// Documents asked for at each offset; fewer where every question reads the whole text anew.
const EACH = { causal: 16, other: 5 };
const ON_GROUPS = ["cca", "mean_pooling", "random_tokens"];  // of g tokens each, from token 0 on
const OWN = "def read_lines(path):\n    \"\"\"Return the lines of a file.\"\"\"\n    with open(path) as file:\n";

export function start() {
  try {
    new App(JSON.parse(element("data").textContent));
  } catch (error) {
    element("problem").hidden = false;
    element("problem").textContent = `This page does not run in this browser (${error.message}); take a newer one.`;
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
    this.settings = { model: 0, mechanism: data.start.mechanism, source: "documents", kind: 0, offset: 0, asked: 12,
      seed: 1, own: OWN, options: { ...this.remembered[data.start.mechanism] } };
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
    element("presets").append(...presets(this.data).map(({ title, hint, ...changes }) => make("button", {
      type: "button", textContent: title, onclick: () => {
        element("hint").textContent = hint;
        Object.assign(this.remembered[changes.mechanism], changes.options);
        this.change({ ...changes, options: { ...this.remembered[changes.mechanism] } });
      } })));
  }

  change(changes) {
    this.settings = { ...this.settings, ...changes };
    this.submit();
  }

  /** Send the job of the present settings; `write` tokens are written after one's own text. */
  submit(write = 0) {
    const { model, mechanism, options, source, kind, seed } = this.settings, { questions, mechanisms } = this.data;
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
    this.send({ kind: "job", version: this.version, model, mechanism, options: { ...options, ...fixed }, asks, write });
  }

  /** The mechanism as the explorer's view names it. */
  attention() {
    const { mechanism, options } = this.settings;
    const { name, title } = this.data.mechanisms.find((one) => one.name === mechanism);
    return { name, title, settings: Object.entries(options).map((pair) => pair.join(" ")).join(", ") };
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
      `Your text has ${all.length} tokens; the model reads ${ids.length}, and the first ${left} are left out.` :
      `Your text has ${ids.length} tokens of the ${this.config.positions} that the model reads.`;
    this.written = [];
    return [{ key: "own", ids, answer: null }];
  }

  /** The question that was chosen, then what is not known yet: all others at this offset, some at each other offset. */
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
    element("offsets-note").textContent = `Percent of ${this.some.length} documents, from the first to the last, ` +
      "each asked for at each offset. Groups begin at token 0, so the documents move through them.";
    showCut(this.documents, asked, offset, ON_GROUPS.includes(mechanism) ? options.group : 0, this.decode);
    const { ids, at } = this.documents[asked];
    element("question").textContent = `${this.decode(ids.slice(0, at))} …   (document ${asked + 1} of ${all.length})`;
    const ask = (place, n) => ({ key: [place, n], ...question(questions.before, this.documents, place, n) });
    const missing = (place, wanted) => wanted.filter((n) => !this.results[place].has(n)).map((n) => ask(place, n));
    return [ask(offset, asked), ...missing(offset, (causal ? all : this.some).filter((n) => n !== asked)),
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
