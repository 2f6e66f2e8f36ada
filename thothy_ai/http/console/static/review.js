// The editor's list and page by keyboard, and findings beside their places.
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

  // What is written is in the database half a second later. Until it is, this tab has it: a server that is away, or a
  // page that is loaded again, loses nothing.
  const missed = new Set();
  for (const form of document.querySelectorAll("[data-draft]")) {
    const name = `draft ${form.dataset.draft.split(" ")[0]} ${form.id}`;
    const areas = [...form.querySelectorAll("textarea")];
    const store = (value) => { try { value ? sessionStorage.setItem(name, value) : sessionStorage.removeItem(name); } catch { /* it is full */ } };
    let typed = 0, sent = 0, timer = 0, late = 0, leaving = false;
    const unkept = (on) => {
      missed[on ? "add" : "delete"](form);
      by("#unkept").hidden = !missed.size;
      clearTimeout(timer);
      if (on) timer = setTimeout(() => form.dispatchEvent(new Event("again")), 2000);
    };
    const keep = () => store(JSON.stringify({ of: form.dataset.draft, texts: areas.map((each) => [each.name, each.value]), submitted: leaving }));
    form.addEventListener("input", () => {
      typed += 1;
      keep();
      clearTimeout(late);  // htmx does not see what is written before it has read the page
      late = setTimeout(() => { if (sent !== typed) form.dispatchEvent(new Event("again")); }, 1500);
    });
    form.addEventListener("htmx:before:request", () => { sent = typed; });
    form.addEventListener("htmx:after:request", (event) => {
      const { status } = event.detail.ctx.response;
      unkept(status >= 500);
      if (status === 200 && sent === typed && event.detail.ctx.text.includes("data-kept")) store(null);
    });
    form.addEventListener("htmx:error", () => unkept(true));
    form.addEventListener("submit", () => { leaving = true; keep(); });
    addEventListener("beforeunload", (event) => { if (!leaving && (typed !== sent || missed.has(form))) event.preventDefault(); });
    const left = JSON.parse(sessionStorage.getItem(name) ?? "null");
    if (left?.submitted && form.dataset.mine.split(" ").includes(left.of.split(" ")[1])) {
      store(null);  // it is in a decision
    } else if (left?.of === form.dataset.draft) {
      for (const [field, text] of left.texts) {
        const area = areas.find((each) => each.name === field);
        if (area) area.value = text;
      }
      show(form.id, true);
      document.activeElement.blur();  // the next key is a decision's, not the beginning of a text
      setTimeout(() => form.dispatchEvent(new Event("again")));
    } else if (left) {
      const box = document.createElement("pre");
      box.className = "banner warn";
      box.tabIndex = 0;
      box.textContent = "You had written this on an earlier version, which somebody has changed since:\n\n" + left.texts.map(([, text]) => text).join("\n\n");
      by("#read").before(box);
      store(null);
    }
  }

  let pressed = null;
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.form?.matches("#edit, #reject, #send-back")) {
      event.preventDefault();
      event.target.form.requestSubmit(event.target.form.querySelector("button[name=action]"));
    }
    if (event.key === "Escape") for (const id of ["edit", "reject", "send-back", "keys"]) show(id, false);
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("textarea, input, select")) return;
    const rows = [...document.querySelectorAll("a[data-row]")], step = { j: 1, k: -1 }[event.key];
    if (rows.length && step) rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(document.activeElement) + step))].focus();
    const link = { j: "a[rel=next]", k: "a[rel=prev]" }[event.key];
    const target = link ? by(link) : by(`[data-key="${CSS.escape(event.key)}"]`);
    if (!target) return;
    event.preventDefault();
    if (target.matches("[name=action]")) pressed = target;
    else target.click();
  });
  // A decision is made when its key is let go, if it was pressed on this page: one that is held decides once, not again
  // on each page that follows.
  document.addEventListener("keyup", (event) => {
    if (pressed?.dataset.key === event.key) pressed.click();
    pressed = null;
  });
})();
