/**
 * What computes, in a thread of its own: jobs come in as messages, and so do answers go out.
 *
 * A new job ends the one before: whoever drags a slider waits for the newest setting only.
 */

const SHOWN = 5;  // continuations of an answer

/**
 * @typedef {object} Job
 * @property {number} version answers carry it.
 * @property {number} model number of the model.
 * @property {string} mechanism
 * @property {object} options of the mechanism.
 * @property {{key: any, ids: number[], answer: ?number}[]} asks texts in order, the first to look
 *     into; a reply carries the text's key, and says whether its first token is the answer.
 * @property {number} write how many tokens to write after the first text.
 */

/**
 * @param {object} packed the weights of the models, see `unpack`.
 * @param {(message: object) => void} send
 * @returns {(message: object) => void} takes a job, {kind: "job", ...}, or a question about its
 *     first text: {kind: "head" or "row", layer, head, row} or {kind: "overview"}.
 */
function engine(packed, send) {
  const { config } = packed;
  const models = packed.models.map(({ parts }) =>
    unpack(packed, parts.map((part) => packed.parts[part])));
  const shown = new Reader(models[0]), reader = new Reader(models[0]);
  let newest = -1, read = -1;  // versions of the newest job, and of the one whose text was read

  async function work({ version, model, mechanism, options, asks, write }) {
    newest = version;
    await pause();
    if (version !== newest) return;
    [shown, reader].forEach((one) => one.begin(mechanism, options, models[model]));
    const started = performance.now();
    read = version;
    const logits = shown.read(asks[0].ids), seconds = (performance.now() - started) / 1000;
    send({ kind: "first", version, ...judged(asks[0], logits), seconds, ...shown.cost() });
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
    if (kind === "row") return { row: new HeadReading(shown, layer, head).row(row) };
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
function ranked(logits) {
  const largest = logits.reduce((one, other) => Math.max(one, other));
  const weights = Array.from(logits, (logit) => Math.exp(logit - largest));
  const total = weights.reduce((sum, weight) => sum + weight);
  return weights.map((weight, id) => ({ id, share: weight / total }))
    .sort((a, b) => b.share - a.share || a.id - b.id);
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
function serve(scope) {
  let receive = null;
  scope.onmessage = ({ data }) => {
    if (receive) receive(data);
    else receive = engine(data, (message) => scope.postMessage(message));
  };
}

// ---------------------------------------------------------------- what the view draws

const LARGEST_MAP = 256, THUMBNAIL = 32;  // rows of a matrix, and of a small one
const NUMBER_BYTES = 4;

/** One head of a text that was read: its columns, and the weights of any row. */
class HeadReading {
  /** @param {Reader} reader */
  constructor(reader, layer, head) {
    const { columns, keys } = reader.columns(layer, head), { q, k } = reader.layers[layer][head];
    const length = reader.ids.length, { dim } = reader, all = full({ length });
    Object.assign(this, { columns, keys, q, k, length, all, dim, scale: dim ** -0.5 });
    this.buffer = new Float64Array(keys.length / reader.dim);
    const { pooling, first = 0 } = columns;
    const raw = (t) => ({ kind: t < first ? "sink" : "raw", tokens: [t], weights: [1] });
    this.list = pooling?.tokens.map((tokens, c) =>
      ({ kind: pooling.kinds[c], tokens, weights: pooling.weights[c] })) ??
      range(0, length).map(raw);
  }

  /** The columns that a row sees, their weights, the tokens' weights, and full attention's. */
  row(query) {
    const seen = intervalsOf(this.columns, query).flatMap(([start, end]) => range(start, end));
    const weights = this.weights(this.keys, this.columns, query, seen.length);
    const effective = new Array(query + 1).fill(0);
    seen.forEach((c, n) => {
      const { tokens, weights: pooling } = this.list[c];
      tokens.forEach((t, m) => { effective[t] += weights[n] * pooling[m]; });
    });
    return { query, seen, weights, effective,
      full: this.weights(this.k, this.all, query, query + 1) };
  }

  /** The softmax of the `count` columns that a row sees among some keys. */
  weights(keys, columns, row, count) {
    const { dim, scale } = this;
    const total = rowWeights(this.q, keys, columns, { row, dim, scale }, this.buffer);
    return Array.from(this.buffer.subarray(0, count), (weight) => weight / total);
  }

  /** Both matrices, an entry for several tokens where there are many, and their mean distance. */
  maps(largest) {
    const step = Math.ceil(this.length / largest), size = Math.ceil(this.length / step);
    const own = new Uint8Array(size * size), full = new Uint8Array(size * size);
    let distance = 0;
    for (let i = 0; i < this.length; i++) {
      const row = this.row(i), line = Math.floor(i / step) * size;
      let shared = 0;
      for (let t = 0; t <= i; t++) {
        const at = line + Math.floor(t / step);
        own[at] = Math.max(own[at], byte(row.effective[t]));
        full[at] = Math.max(full[at], byte(row.full[t]));
        shared += Math.min(row.effective[t], row.full[t]);
      }
      distance += (1 - shared) / this.length;
    }
    return { size, own, full, distance };
  }
}

const byte = (weight) => Math.round(255 * Math.sqrt(Math.min(1, weight)));

/** The state of one head and a row (null for the last), without what the page knows. */
function headState(reader, layer, head, row) {
  const reading = new HeadReading(reader, layer, head), { pairs, all } = reader.cost(layer);
  const { size, own, full } = reading.maps(LARGEST_MAP);
  const entry = 2 * NUMBER_BYTES * reader.dim * reader.layers[layer].length;
  const memory = (entryCount) => entryCount && entry * entryCount;
  const { length } = reading, kept = entries(reader.name, reader.options, length);
  return { columns: reading.list, row: reading.row(row ?? length - 1), maps: { size, own, full },
    totals: { pairs, pairsFull: all, entries: kept, entriesFull: length,
      bytes: memory(kept), bytesFull: memory(length) } };
}

/** A small matrix of every head, and how far each is from full attention. */
function overview(reader) {
  const maps = reader.layers.flatMap((heads, layer) =>
    heads.map((_, n) => new HeadReading(reader, layer, n).maps(THUMBNAIL)));
  const size = maps[0].size, all = new Uint8Array(maps.length * size * size);
  maps.forEach(({ own }, n) => all.set(own, n * size * size));
  return { layers: reader.layers.length, heads: reader.layers[0].length, size, maps: all,
    distances: maps.map(({ distance }) => distance) };
}

/** The `Numbers` of a row of some columns, as explorer/state.py says what each is. */
function numbersOf(row, columns) {
  const read = new Set();
  for (const column of row.seen) {
    const { tokens, weights } = columns[column];
    for (let n = 0; n < tokens.length; n++) if (weights[n] > 0) read.add(tokens[n]);
  }
  let lost = 0, shared = 0;
  for (let t = 0; t < row.full.length; t++) {
    if (!read.has(t)) lost += row.full[t];
    shared += Math.min(row.full[t], row.effective[t] ?? 0);
  }
  const { effective, full } = row;
  return { lost, distance: Math.max(0, 1 - shared), k90: keysFor90(effective),
    k90Full: keysFor90(full), entropy: entropyOf(effective), entropyFull: entropyOf(full) };
}

/** @returns {number} how many of the largest weights reach 90 %. */
function keysFor90(weights) {
  let sum = 0, needed = 0;
  for (const weight of Float64Array.from(weights).sort().reverse()) {
    sum += weight;
    needed++;
    if (sum >= 0.9 - 1e-6) break;  // this close to 90 % has reached it
  }
  return needed;
}

/** @returns {number} the entropy in nats. */
function entropyOf(weights) {
  return Array.from(weights).reduce((sum, w) => (w > 0 ? sum - w * Math.log(w) : sum), 0);
}
