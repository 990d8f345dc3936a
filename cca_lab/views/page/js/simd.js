/**
 * The same product as `linear.js`, four numbers at a time: a WebAssembly program of one function, assembled here.
 *
 * It holds a tile of 4 rows x 8 columns in registers. Its text is WebAssembly's own, one instruction a line; `assemble`
 * turns it into bytes. The weights lie in the program's memory, so nothing is copied.
 */

const INSTRUCTIONS = {
  "loop": [0x03, 0x40], "end": [0x0b], "br_if": [0x0d], "local.get": [0x20], "local.set": [0x21], "i32.const": [0x41],
  "i32.lt_u": [0x49], "i32.add": [0x6a], "i32.sub": [0x6b], "i32.mul": [0x6c], "v128.load": [0xfd, 0x00, 0x00],
  "v128.load32_splat": [0xfd, 0x09, 0x00], "v128.store": [0xfd, 0x0b, 0x00], "f32x4.add": [0xfd, 0xe4, 0x01],
  "f32x4.mul": [0xfd, 0xe6, 0x01],
};
const I32 = 0x7f, V128 = 0x7b;
const PARAMETERS = ["x", "w", "bias", "out", "rows", "n", "m"];  // four addresses in bytes, three counts
const NUMBERS = ["i", "j", "k", "from", "to", "xRow", "wRow", "p0", "p1", "p2", "p3", "pw"];
const VECTORS = ["w0", "w1", "a", ...[0, 1, 2, 3].flatMap((row) => [`sum${row}0`, `sum${row}1`])];

/** out[i, j .. j + 8) for four rows at once: bias + the sum over k of x[i, k] w[k, j .. j + 8). */
const PROGRAM = `
  ${set("xRow", "n * 4")} ${set("wRow", "m * 4")}
  loop
    ${set("from", "x + 0")} ${set("to", "out + j")} ${set("i", "rows + 0")}
    loop
      ${each((row) => `local.get bias local.get j i32.add v128.load 0 local.set sum${row}0
                       local.get bias local.get j i32.add v128.load 16 local.set sum${row}1`)}
      ${set("p0", "from + 0")} ${set("p1", "p0 + xRow")} ${set("p2", "p1 + xRow")} ${set("p3", "p2 + xRow")}
      ${set("pw", "w + j")} ${set("k", "xRow + 0")}
      loop
        local.get pw v128.load 0 local.set w0
        local.get pw v128.load 16 local.set w1
        ${each((row) => `local.get p${row} v128.load32_splat 0 local.set a
                         local.get sum${row}0 local.get a local.get w0 f32x4.mul f32x4.add local.set sum${row}0
                         local.get sum${row}1 local.get a local.get w1 f32x4.mul f32x4.add local.set sum${row}1
                         ${set(`p${row}`, `p${row} + 4`)}`)}
        ${set("pw", "pw + wRow")} ${set("k", "k - 4")}
        local.get k br_if 0
      end
      ${each((row) => `local.get to local.get sum${row}0 v128.store 0 local.get to local.get sum${row}1 v128.store 16
                       ${set("to", "to + wRow")}`)}
      ${set("from", "p3 + 0")} ${set("i", "i - 4")}
      local.get i br_if 0
    end
    ${set("j", "j + 32")}
    local.get j local.get wRow i32.lt_u br_if 0
  end`;

/** The instructions of "name = left + right" (or - or *). */
function set(name, formula) {
  const [left, sign, right] = formula.split(" ");
  const get = (word) => (/^\d/.test(word) ? `i32.const ${word}` : `local.get ${word}`);
  return `${get(left)} ${get(right)} i32.${{ "+": "add", "-": "sub", "*": "mul" }[sign]} local.set ${name}`;
}

function each(instructions) {
  return [0, 1, 2, 3].map(instructions).join("\n");
}

/** Encode an unsigned number, seven bits a byte, the lowest first. (Signed constants below 64 look the same.) */
function leb(number) {
  return number < 128 ? [number] : [(number & 127) | 128, ...leb(number >>> 7)];
}

function section(id, bytes) {
  return [id, ...leb(bytes.length), ...bytes];
}

function text(name) {
  return [name.length, ...new TextEncoder().encode(name)];
}

/** @returns {Uint8Array} the module: it imports env.memory and exports the function "linear". */
export function assemble() {
  const names = [...PARAMETERS, ...NUMBERS, ...VECTORS];
  const code = PROGRAM.trim().split(/\s+/).flatMap((word) =>
    INSTRUCTIONS[word] ?? leb(names.includes(word) ? names.indexOf(word) : Number(word)));
  const body = [2, NUMBERS.length, I32, VECTORS.length, V128, ...code, 0x0b];
  return new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,                                 // "\0asm", version 1
    ...section(1, [1, 0x60, PARAMETERS.length, ...PARAMETERS.map(() => I32), 0]),          // the type of the function
    ...section(2, [1, ...text("env"), ...text("memory"), 2, 0, 1]),                        // its memory, 1 page or more
    ...section(3, [1, 0]), ...section(7, [1, ...text("linear"), 0, 0]),
    ...section(10, [1, ...leb(body.length), ...body])]);
}
