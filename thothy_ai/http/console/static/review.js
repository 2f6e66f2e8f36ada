// The editor's page by keyboard, and findings beside their places.
(() => {
  const by = (selector) => document.querySelector(selector);
  const show = (id, on) => {
    const part = document.getElementById(id);
    if (!part) return;
    part.hidden = !on;
    if (id === "edit") by("#read").hidden = on;
    if (on) part.querySelector("textarea")?.focus();
    else if (part.contains(document.activeElement)) document.activeElement.blur();
  };
  for (const button of document.querySelectorAll("[data-open]")) {
    button.addEventListener("click", () => show(button.dataset.open, document.getElementById(button.dataset.open).hidden));
  }
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => show(button.dataset.close, false));
  const places = [...document.querySelectorAll("[data-finding]")];
  const touch = (numbers, scroll) => {
    const wanted = new Set(numbers.split(" "));
    for (const each of places) each.classList.toggle("on", each.dataset.finding.split(" ").some((n) => wanted.has(n)));
    if (scroll) for (const mark of document.querySelectorAll("mark.on")) mark.scrollIntoView({ block: "nearest" });
  };
  for (const each of places) {
    for (const name of ["click", "focus"]) each.addEventListener(name, () => touch(each.dataset.finding, each.tagName === "BUTTON"));
    each.addEventListener("mouseenter", () => touch(each.dataset.finding, false));
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const id of ["edit", "reject", "send-back", "keys"]) show(id, false);
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("textarea, input, select")) return;
    const link = { j: "a[rel=next]", k: "a[rel=prev]" }[event.key];
    const target = link ? by(link) : by(`[data-key="${CSS.escape(event.key)}"]`);
    if (target) { event.preventDefault(); target.click(); }
  });
})();
