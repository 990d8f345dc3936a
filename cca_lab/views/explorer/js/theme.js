/** Whether the page around the view is dark: JupyterLab's theme, the lab's own pages, or the reader's system. */

/** @returns {"light"|"dark"} */
export function themeNow() {
  const lab = document.querySelector("[data-jp-theme-light]");
  if (lab) return lab.dataset.jpThemeLight === "false" ? "dark" : "light";
  const chosen = document.documentElement.dataset.scheme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Call a function whenever the theme may have changed. @returns {() => void} stops it. */
export function watchTheme(changed) {
  const query = matchMedia("(prefers-color-scheme: dark)"), observer = new MutationObserver(changed);
  query.addEventListener("change", changed);
  for (const element of [document.documentElement, document.body]) {
    observer.observe(element, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-scheme"] });
  }
  return () => {
    query.removeEventListener("change", changed);
    observer.disconnect();
  };
}
