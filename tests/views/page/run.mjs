/** node run.mjs FOLDER TASK: a task with the page's modules of a folder; a job comes in as JSON, a result goes out. */

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , folder, task] = process.argv;
const load = (name) => import(pathToFileURL(`${folder}/${name}`));

/** The models of a packed page, and a reader. */
async function models(packed, simd) {
  const { Memory } = await load("linear.js"), { Reader } = await load("model.js");
  const { modelFloats, unpack } = await load("weights.js");
  const memory = new Memory(packed.models.length * modelFloats(packed) + Reader.floats(packed.config), simd);
  const list = packed.models.map(({ parts }) => unpack(packed, parts.map((part) => packed.parts[part]), memory));
  return { list, reader: new Reader(list[0], memory), simd: Boolean(memory.kernel) };
}

const TASKS = {
  /** The logits of each prompt in each case, {model, name, options}, with the prompts read one after another. */
  async logits({ packed, cases, prompts, simd }) {
    const { list, reader, simd: used } = await models(packed, simd);
    const out = cases.map(({ model, name, options, fresh }) => {
      reader.begin(name, options, list[model]);
      return prompts.map((ids) => {
        if (fresh) reader.begin(name, options, list[model]);
        return [...reader.read(ids)];
      });
    });
    return { logits: out, simd: used };
  },
  /** Seconds to read a text, the best of some times, in each case. */
  async seconds({ packed, cases, prompts: [ids], times }) {
    const { list, reader } = await models(packed, true);
    return cases.map(({ model, name, options }) => Math.min(...Array.from({ length: times }, () => {
      reader.begin(name, options, list[model]);
      const started = performance.now();
      reader.read(ids);
      return (performance.now() - started) / 1000;
    })));
  },
  /** Every weight of a model. */
  async weights({ packed, model }) {
    const { list } = await models(packed, false);
    return packed.tensors.map(([path]) => [...path.split(".").reduce((object, key) => object[key], list[model])]);
  },
  /** The tokens of texts, and the texts of these tokens. */
  async tokens({ vocabulary, texts }) {
    const { Tokenizer } = await load("tokenizer.js"), tokenizer = new Tokenizer(vocabulary);
    return texts.map((text) => ({ ids: tokenizer.encode(text), text: tokenizer.decode(tokenizer.encode(text)) }));
  },
  /** Documents of each kind, and the question for each at some offsets. */
  async questions({ words, positions, seeds, offsets }) {
    const { draw, question } = await load("questions.js");
    return words.kinds.map((_, kind) => seeds.map((seed) => {
      const documents = draw(words, kind, positions, seed);
      return { documents, asked: offsets.map((offset) => documents.map((_, n) =>
        question(words.before, documents, offset, n))) };
    }));
  },
  /** The effective weights of every row of a head, and the entries of a cache. */
  async looks({ packed, cases, ids, layer, head, lengths }) {
    const { list, reader } = await models(packed, true), { Head, entries } = await load("states.js");
    return cases.map(({ model, name, options }) => {
      reader.begin(name, options, list[model]);
      reader.read(ids);
      const one = new Head(reader, layer, head);
      return { rows: ids.map((_, row) => one.row(row)), columns: one.list, cost: reader.cost(layer),
        entries: lengths.map((length) => entries(name, options, length)) };
    });
  },
  /** The names of the mechanisms, and the labels of their options. */
  async names() {
    const { MECHANISMS } = await load("mechanisms.js"), { LABELS } = await load("controls.js");
    return { mechanisms: Object.keys(MECHANISMS), labels: Object.keys(LABELS) };
  },
};

process.stdout.write(JSON.stringify(await TASKS[task](JSON.parse(readFileSync(0, "utf8")))));
