/** The way to the engine: messages go there and come back, wherever it runs. */

import { element } from "./controls.js";
import { engine } from "./engine.js";

/**
 * Start the engine in a thread of its own, or, where a browser forbids that, in this one.
 * @param {object} packed the weights, see weights.js.
 * @param {(message: object) => void} receive takes what the engine sends.
 * @returns {(message: object) => void} sends a message to the engine.
 */
export function connect(packed, receive) {
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
