// What htmx does not do by itself: say that the server is away, open a page's stream again, and send a form once.
(() => {
  const AGAIN = 2000, SILENCE = 15000;  // milliseconds
  const [lost, many, stream] = ["lost", "many", "stream"].map((id) => document.getElementById(id));
  let connection = null, heard = Date.now();
  const here = () => { heard = Date.now(); lost.hidden = many.hidden = true; };
  const failed = (status) => {
    if (status === 401) location.reload();
    many.hidden = status !== 429;
    lost.hidden = status === 429;
  };
  const open = () => setTimeout(() => htmx.trigger(stream, "open"), AGAIN);

  document.addEventListener("htmx:sse:after:connection", (event) => { connection = event.detail.connection; here(); });
  document.addEventListener("htmx:sse:after:message", here);
  document.addEventListener("htmx:sse:error", (event) => failed(event.detail.status));
  document.addEventListener("htmx:sse:close", () => { connection = null; });
  for (const name of ["htmx:error", "htmx:response:error"]) {
    document.addEventListener(name, (event) => {
      const status = event.detail.ctx?.response?.status;
      if (event.target === stream) { failed(status); if (!connection) open(); }  // the extension repeats only what had begun
      else if (!status || status >= 502) failed(status);
    });
  }
  document.addEventListener("htmx:after:request", (event) => {
    if (event.target !== stream && event.detail.ctx.response.status < 500) lost.hidden = true;
  });
  document.addEventListener("visibilitychange", () => { heard = Date.now(); });
  setInterval(() => {  // a server that hangs, or a network that lost the connection, says nothing
    if (document.hidden || !connection || Date.now() - heard < SILENCE) return;
    failed();
    heard = Date.now();
    connection.reader?.cancel();
  }, AGAIN);

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post") return;
    if (form.dataset.sent || !lost.hidden) event.preventDefault();
    else form.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => { for (const form of document.forms) delete form.dataset.sent; });

  document.addEventListener("change", ({ target }) => {  // a box in a table's head ticks all below it
    const rows = target.closest("table")?.querySelectorAll("tbody input[type=checkbox]");
    if (target.matches("[data-all]")) for (const each of rows) each.checked = target.checked;
  });

  document.addEventListener("click", async ({ target }) => {
    const button = target.closest("[data-copy]"), text = button?.previousElementSibling;
    if (!button) return;
    getSelection().selectAllChildren(text);
    let copied = false;
    try {  // an address without TLS has no clipboard, and may still have the older command
      await navigator.clipboard.writeText(text.textContent);
      copied = true;
    } catch { copied = document.execCommand("copy"); }
    button.nextElementSibling.textContent = copied ? "Copied." : "Press Ctrl+C: it is selected.";
  });

  if (document.querySelector("[data-again]")) {  // an error that passes
    setInterval(() => fetch(location.href, { redirect: "manual" }).then(
      (answer) => { if (answer.status !== 503) location.reload(); }, () => {}), AGAIN);
  }
})();
