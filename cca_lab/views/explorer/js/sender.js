/** Sends changes to a program that answers one at a time: while it works, newer changes are joined, not queued. */

export class Sender {
  /** @param {(message: {serial: number, changes: object}) => void} send */
  constructor(send) {
    Object.assign(this, { send, serial: 0, answered: 0, waiting: null });
  }

  /** Ask for changes; options are joined one by one. */
  ask(changes) {
    const before = this.waiting ?? {}, options = { ...before.options, ...changes.options };
    this.waiting = { ...before, ...changes, ...(Object.keys(options).length ? { options } : {}) };
    if (changes.attention !== undefined) this.waiting.options = changes.options ?? {};  // another mechanism has others
    this.next();
  }

  /** Take note of an answer. */
  answer(serial) {
    this.answered = serial;
    this.next();
  }

  next() {
    if (this.waiting === null || this.answered < this.serial) return;
    const changes = this.waiting;
    this.waiting = null;
    this.serial += 1;
    this.send({ serial: this.serial, changes });
  }
}
