/**
 * What the explorer's view draws: the contract between `view.js` and any program that computes states. Plain JSON.
 *
 * All indices count from 0. L is the number of tokens, C the number of columns of the softmax. A weight is a number
 * from 0 to 1. An array of weights over tokens may be shorter than L: what is left out is 0 (row i needs i + 1).
 *
 * A mechanism is `out_i = softmax(scale q_i . keys of the columns that row i sees) (P V)`: P pools tokens into
 * columns, A holds the softmax's weights, and E = A P are the effective weights of the tokens.
 */

/**
 * @typedef {object} State                one head's reading of a text
 * @property {string[]} words             the L tokens as text, spaces and line ends as they are
 * @property {Attention} attention        the mechanism
 * @property {Column[]} columns           the C columns that exist, in the softmax's order; the same for all queries
 * @property {Row} row                    what the query reads: all that a click on a word changes
 * @property {Row[]} [rows]               the rows of all L queries: with them the view moves the query by itself
 * @property {Totals} totals              what the whole text costs
 * @property {?Place} [place]             which head of which model; leave it out for tensors without a model
 * @property {?Maps} [maps]               this head's matrices of all rows
 * @property {?Overview} [overview]       all heads of all layers, for the grid
 * @property {string} [message]           a text to show above the view (an error of the last change, say)
 */

/**
 * @typedef {object} Attention
 * @property {string} name                the key in MECHANISMS: "full", "cca", "dga", ...
 * @property {string} title               in prose: "CCA-Attention"
 * @property {string} settings            its options, short: "group 8, window 16"; "" if there are none
 */

/**
 * @typedef {object} Column
 * @property {Kind} kind
 * @property {number[]} tokens            the tokens in it, ascending; one for a column that is a token
 * @property {number[]} weights           as many: its row of P, which sums to 1
 */

/**
 * @typedef {"raw"|"sink"|"focal"|"kept"|"core"|"group"|"slot"} Kind
 *   raw: a token as it is; sink: one of the first tokens, kept for all rows; focal: a token that DGA keeps;
 *   kept: a token that stands for its group (random tokens); core: a pooled group of neighbours (CCA, mean pooling);
 *   group: a pooled group of DGA; slot: a slot of LoCoCo's memory
 */

/**
 * @typedef {object} Row
 * @property {number} query               the token whose query it is
 * @property {number[]} seen              the columns that it sees, ascending
 * @property {number[]} weights           as many: its row of A, which sums to 1
 * @property {number[]} effective         its row of E: the weight of each token, at most L
 * @property {number[]} full              full attention's row for the same queries and keys, at most L
 * @property {Numbers} numbers            `numbersOf` in numbers.js computes them from the other fields
 */

/**
 * @typedef {object} Numbers              of one row against full attention's
 * @property {number} lost                full attention's weight on tokens that are in no seen column
 * @property {number} distance            total variation, 1 - sum_t min(E_t, full_t): 0 if equal, 1 if none is shared
 * @property {number} k90                 tokens with the largest effective weights that reach 90 %
 * @property {number} k90Full             the same in full attention
 * @property {number} entropy             of the effective weights, in nats
 * @property {number} entropyFull         the same of full attention
 */

/**
 * @typedef {object} Totals
 * @property {number} pairs               query-column pairs that one head scores for the whole text
 * @property {number} pairsFull           L (L + 1) / 2
 * @property {?number} bytes              the cache of one layer after the text, keys and values of all KV heads; null
 *                                        if the mechanism has no cache of its own, or without a model
 * @property {?number} bytesFull          the same for full attention
 * @property {?number} entries            entries (a key and a value) of one KV head; null without a cache of its own
 * @property {number} entriesFull         L
 */

/**
 * @typedef {object} Place
 * @property {string} model               its name
 * @property {number} layer
 * @property {number} head
 * @property {number} layers              how many there are
 * @property {number} heads               in each layer
 */

/**
 * @typedef {object} Maps                 matrices (rows are queries), one byte per entry: round(255 sqrt(weight))
 * @property {number} size                rows and columns; less than L if an entry is the largest of several tokens'
 * @property {string|Uint8Array} own      E, size * size bytes row by row; a string is base64
 * @property {string|Uint8Array} full     full attention's
 */

/**
 * @typedef {object} Overview             a thumbnail of E for each head
 * @property {number} layers
 * @property {number} heads
 * @property {number} size                rows and columns of a thumbnail, 32 or less
 * @property {string|Uint8Array} maps     layers * heads * size * size bytes as in Maps: layer by layer, head by head
 * @property {number[]} distances         layers * heads: the mean over all rows of Numbers.distance
 */

/**
 * @typedef {object} Handlers             what the view calls; each may be left out
 * @property {(query: number) => void} [onQuery]                a word (or a row of a matrix) was chosen
 * @property {(layer: number, head: number) => void} [onHead]   a head of the grid was chosen
 */

/**
 * @typedef {object} View                 what `render(container, state, handlers)` of view.js returns
 * @property {(change: Partial<State>) => void} update   draw again with some fields replaced: `{ row }` after onQuery,
 *                                                       a whole state after another head, mechanism or text
 * @property {() => void} destroy                        empty the container and stop listening
 */

export {};
