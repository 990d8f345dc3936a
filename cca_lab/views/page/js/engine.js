/**
 * What computes, in a thread of its own: jobs come in as messages, answers go out as messages, one for each question.
 *
 * A new job ends the one before: whoever drags a slider waits for the newest setting only.
 */

import { Memory } from "./linear.js";
import { Reader } from "./model.js";
import { Head, headState, overview } from "./states.js";
import { modelFloats, unpack } from "./weights.js";

const SHOWN = 5;  // continuations of an answer

/**
 * @typedef {object} Job
 * @property {number} version answers carry it.
 * @property {number} model number of the model.
 * @property {string} mechanism
 * @property {object} options of the mechanism.
 * @property {{key: any, ids: number[], answer: ?number}[]} asks texts in order, the first is the one to look into; the
 *     answer to a text carries its key, and says whether its first token is the one that is wanted.
 * @property {number} write how many tokens to write after the first text.
 */

/**
 * @param {object} packed the weights of the models, see weights.js.
 * @param {(message: object) => void} send
 * @returns {(message: object) => void} takes a job, {kind: "job", ...}, or a question about the first text of the last
 *     one: {kind: "head" or "row", layer, head, row} or {kind: "overview"}.
 */
export function engine(packed, send) {
  const { config } = packed;
  const memory = new Memory(packed.models.length * modelFloats(packed) + 2 * Reader.floats(config));
  const models = packed.models.map(({ parts }) => unpack(packed, parts.map((part) => packed.parts[part]), memory));
  const shown = new Reader(models[0], memory), reader = new Reader(models[0], memory);
  let newest = -1, read = -1;  // versions of the newest job, and of the one whose text was read

  async function work({ version, model, mechanism, options, asks, write }) {
    newest = version;
    await pause();
    if (version !== newest) return;
    [shown, reader].forEach((one) => one.begin(mechanism, options, models[model]));
    const started = performance.now();
    read = version;
    const logits = shown.read(asks[0].ids), seconds = (performance.now() - started) / 1000;
    const simd = Boolean(memory.kernel);
    send({ kind: "first", version, ...judged(asks[0], logits), seconds, ...shown.cost(), simd });
    for (const ask of asks.slice(1)) {
      await pause();
      if (version !== newest) return;
      send({ kind: "answer", version, ...judged(ask, reader.read(ask.ids)) });
    }
    await continued(version, asks[0].ids, write);
  }

  async function continued(version, ids, count) {
    const text = [...ids];
    for (let n = 0; n < count && text.length < config.positions; n++) {
      const [best] = ranked(reader.read(text));
      text.push(best.id);
      send({ kind: "written", version, id: best.id });
      await pause();
      if (version !== newest) return;
    }
  }

  /** What a view shows of the first text: a head, one row of it, or all heads. */
  function looked({ kind, layer, head, row }) {
    if (kind === "head") return headState(shown, layer, head, row);
    if (kind === "row") return { row: new Head(shown, layer, head).row(row) };
    return { overview: overview(shown) };
  }

  return (message) => {
    if (message.kind === "job") work(message);
    else if (shown.ids.length) send({ ...message, version: read, ...looked(message) });
  };
}

/** The continuations of a text by their share, and whether the first is the answer. */
function judged({ key, answer }, logits) {
  const order = ranked(logits);
  return { key, top: order.slice(0, SHOWN), right: order[0].id === answer,
    answer: order.find(({ id }) => id === answer) ?? null };
}

/** @returns {{id: number, share: number}[]} all tokens by their probability, the highest first. */
export function ranked(logits) {
  const largest = logits.reduce((one, other) => Math.max(one, other));
  const weights = Array.from(logits, (logit) => Math.exp(logit - largest));
  const total = weights.reduce((sum, weight) => sum + weight);
  return weights.map((weight, id) => ({ id, share: weight / total })).sort((a, b) => b.share - a.share || a.id - b.id);
}

/** Let messages that wait be read; a timer would wait longer. */
function pause() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(null);
  });
}

/** Serve as a worker: the first message holds the weights, the others go to the engine. */
export function serve(scope) {
  let receive = null;
  scope.onmessage = ({ data }) => {
    if (receive) receive(data);
    else receive = engine(data, (message) => scope.postMessage(message));
  };
}
