/** What a page does beyond links: the list of pages on a phone, the colours, the search box. */

import { excerpt, find } from "./search.js";

const WAIT = 120; // ms after the last key
const MOST = 30; // places that are shown
const NARROW = "(max-width: 50rem)", WIDE = "(min-width: 75rem)"; // as in site.css

/** Wire up the page; without this script it can still be read, and every page reached. */
export function start() {
  menu(byId("menu"), byId("side"));
  colours(byId("colours"));
  search(byId("search"), byId("query"), byId("found"));
  const contents = document.querySelector(".contents details");
  if (contents) contents.open = matchMedia(WIDE).matches;
}

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
function byId(id) {
  return document.getElementById(id);
}

/**
 * The button that shows the list of pages where there is no room beside the text.
 * @param {HTMLElement} button
 * @param {HTMLElement} side
 */
function menu(button, side) {
  const show = (open) => {
    side.classList.toggle("open", open);
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => show(!side.classList.contains("open")));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !side.classList.contains("open")) return;
    show(false);
    button.focus();
  });
  const here = side.querySelector("[aria-current]");
  if (here && !matchMedia(NARROW).matches) side.scrollTop = here.offsetTop - side.clientHeight / 2;
}

/**
 * The switch between dark and light; until it is used, the system decides.
 * @param {HTMLElement} button
 */
function colours(button) {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.scheme ?? (system.matches ? "dark" : "light")) === "dark";
  const show = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    root.dataset.scheme = dark() ? "light" : "dark";
    try {
      localStorage.setItem("cca-lab-scheme", root.dataset.scheme);
    } catch { /* not kept for the next page where the browser keeps nothing */ }
    show();
  });
  system.addEventListener("change", show);
  show();
}

/**
 * The search box: the index is loaded when it is first needed.
 * @param {HTMLElement} form
 * @param {HTMLInputElement} query
 * @param {HTMLElement} found
 */
function search(form, query, found) {
  const [status, list] = [found.querySelector("[role=status]"), found.querySelector("ol")];
  let timer = 0, loading = null;
  const load = () => (loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = "search-index.js";
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  }));
  const answer = () => load().then(() => {
    const places = find(globalThis.siteIndex, query.value, MOST);
    list.replaceChildren(...places.map((place) => item(place, query.value)));
    status.textContent = !places.length ? "Nothing found" :
      places.length < MOST ? `${places.length} found` : `The best ${MOST}`;
    found.hidden = !query.value.trim();
  }, () => {
    status.textContent = "search-index.js is missing: build the site again";
    found.hidden = false;
  });
  query.addEventListener("focus", load);
  query.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(answer, WAIT);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    answer().then(() => list.querySelector("a")?.click());
  });
  document.addEventListener("keydown", (event) => keys(event, query, found, list));
  document.addEventListener("click", (event) => {
    if (!form.contains(event.target) || event.target.closest("a")) found.hidden = true;
  });
}

/**
 * One place that was found, as an entry of the list.
 * @param {import("./search.js").Place} place
 * @param {string} question
 * @returns {HTMLElement}
 */
function item(place, question) {
  const entry = document.createElement("li"), link = document.createElement("a");
  const [where, text] = [document.createElement("strong"), document.createElement("span")];
  where.textContent = place.heading && place.heading !== place.title ? `${place.title}: ${place.heading}` : place.title;
  for (const [piece, marked] of excerpt(place.text, place.heading, question)) {
    const part = document.createElement(marked ? "mark" : "span");
    part.textContent = piece;
    text.append(part);
  }
  link.href = place.address;
  link.append(where, text);
  entry.append(link);
  return entry;
}

/**
 * "/" goes to the search box, arrows through what was found, Escape closes it.
 * @param {KeyboardEvent} event
 * @param {HTMLInputElement} query
 * @param {HTMLElement} found
 * @param {HTMLElement} list
 */
function keys(event, query, found, list) {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    query.focus();
    return;
  }
  if (found.hidden || !query.form.contains(document.activeElement)) return;
  const stops = [query, ...list.querySelectorAll("a")], at = stops.indexOf(document.activeElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Escape: 0 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  if (event.key === "Escape") found.hidden = true;
  stops[Math.min(Math.max(next, 0), stops.length - 1)].focus();
}
