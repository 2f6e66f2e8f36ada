// What htmx does not do by itself: say that the server is away, and load a page anew once its job has changed.
(() => {
  const away = document.getElementById("away");
  const show = (on) => { if (away) away.hidden = !on; };
  for (const name of ["htmx:sse:error", "htmx:error"]) {
    document.addEventListener(name, (event) => (event.detail?.status === 401 ? location.reload() : show(true)));
  }
  document.addEventListener("htmx:after:request", (event) => { if (event.detail?.ctx?.response?.status < 500) show(false); });
  for (const name of ["htmx:sse:after:connection", "htmx:sse:after:message"]) document.addEventListener(name, () => show(false));
  for (const each of document.querySelectorAll("[data-reload-on]")) {
    each.addEventListener(each.dataset.reloadOn, () => location.reload());
  }
})();
