/** node run.mjs SCRIPT TASK: run a task with the page's program; JSON in, JSON out. */

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , script, task] = process.argv;
const { HeadReading, LABELS, MECHANISMS, Reader, Tokenizer, draw, entries, numbersOf, question,
  unpack } = await import(pathToFileURL(script));

/** The models of a packed page, and a reader. */
function models(packed) {
  const list = packed.models.map(({ parts }) =>
    unpack(packed, parts.map((part) => packed.parts[part])));
  return { list, reader: new Reader(list[0]) };
}

const TASKS = {
  /** The logits of each prompt in each case, {model, name, options}. */
  logits({ packed, cases, prompts }) {
    const { list, reader } = models(packed);
    return cases.map(({ model, name, options, fresh }) => {
      reader.begin(name, options, list[model]);
      return prompts.map((ids) => {
        if (fresh) reader.begin(name, options, list[model]);
        return [...reader.read(ids)];
      });
    });
  },
  /** Seconds to read a text, the best of some times, in each case. */
  seconds({ packed, cases, prompts: [ids], times }) {
    const { list, reader } = models(packed);
    return cases.map(({ model, name, options }) => Math.min(...Array.from({ length: times }, () => {
      reader.begin(name, options, list[model]);
      const started = performance.now();
      reader.read(ids);
      return (performance.now() - started) / 1000;
    })));
  },
  /** Every weight of a model. */
  weights({ packed, model }) {
    const { list } = models(packed);
    const at = (path) => path.split(".").reduce((object, key) => object[key], list[model]);
    return packed.tensors.map(([path]) => [...at(path)]);
  },
  /** The tokens of texts, and the texts of these tokens. */
  tokens({ vocabulary, texts }) {
    const tokenizer = new Tokenizer(vocabulary);
    return texts.map((text) => ({ ids: tokenizer.encode(text),
      text: tokenizer.decode(tokenizer.encode(text)) }));
  },
  /** Documents of each kind, and the question for each at some offsets. */
  questions({ words, positions, seeds, offsets }) {
    return words.kinds.map((_, kind) => seeds.map((seed) => {
      const documents = draw(words, kind, positions, seed);
      return { documents, asked: offsets.map((offset) => documents.map((_, n) =>
        question(words.before, documents, offset, n))) };
    }));
  },
  /** The effective weights of every row of a head, and the entries of a cache. */
  looks({ packed, cases, ids, layer, head, lengths }) {
    const { list, reader } = models(packed);
    return cases.map(({ model, name, options }) => {
      reader.begin(name, options, list[model]);
      reader.read(ids);
      const one = new HeadReading(reader, layer, head);
      return { rows: ids.map((_, row) => one.row(row)), cost: reader.cost(layer),
        entries: lengths.map((length) => entries(name, options, length)) };
    });
  },
  /** The names of the mechanisms, and the labels of their options. */
  names() {
    return { mechanisms: Object.keys(MECHANISMS), labels: Object.keys(LABELS) };
  },
  /** The numbers of rows. */
  numbers({ rows, columns }) {
    return rows.map((row) => numbersOf(row, columns));
  },
};

process.stdout.write(JSON.stringify(TASKS[task](JSON.parse(readFileSync(0, "utf8")))));
