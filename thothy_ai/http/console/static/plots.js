// Draws each `.chart` from the table in it, which has the same numbers for those who do not see the plot.
(() => {
  const HEIGHT = 200;
  const style = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();
  const number = (cell) => (cell.dataset.y === "" ? null : Number(cell.dataset.y));
  const two = (value) => String(value).padStart(2, "0");
  const spell = (seconds) => {  // as the tables and the command line do
    if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
    const whole = Math.round(seconds);
    if (whole < 3600) return `${Math.floor(whole / 60)} m ${two(whole % 60)} s`;
    if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} m`;
    return `${Math.floor(whole / 86400)} d ${two(Math.floor((whole % 86400) / 3600))} h`;
  };
  const spoken = (unit) => (value) =>
    value == null ? "-" : unit === "%" ? `${Math.round(100 * value)}%` : unit === "s" ? spell(value) : value.toLocaleString("en");
  const clocks = (_, splits, __, ___, step) =>
    splits.map((seconds) => new Date(1000 * seconds).toISOString()).map((at) => (step >= 86400 ? at.slice(5, 10) : at.slice(11, step >= 60 ? 16 : 19)));
  const COUNTS = [...Array(8).keys()].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
  const STEPS = { "": COUNTS, "%": [0.25], s: [0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 86400] };

  const draw = (figure) => {
    const into = figure.querySelector(".canvas");
    const heads = [...figure.querySelectorAll("thead th")].slice(1);
    const rows = [...figure.querySelectorAll("tbody tr")];
    const names = rows.map((row) => row.cells[0].textContent);
    const values = heads.map((_, at) => rows.map((row) => number(row.cells[at + 1])));
    const { mode, unit } = figure.dataset;
    const say = spoken(unit);
    // Bars stand on each other: the first series at the bottom, drawn last.
    const sums = values.map((_, at) => rows.map((_, row) => values.slice(0, at + 1).reduce((sum, each) => sum + each[row], 0)));
    const order = heads.map((_, at) => (mode === "bars" ? heads.length - 1 - at : at));
    const quiet = style(into, "color");
    const axis = { stroke: quiet, grid: { stroke: style(into, "border-top-color"), width: 1 }, ticks: { show: false }, font: `12px ${style(into, "font-family")}` };
    const series = order.map((at) => ({
      label: heads[at].textContent,
      stroke: style(heads[at].firstElementChild, "color"),
      fill: mode === "bars" ? style(heads[at].firstElementChild, "color") : undefined,
      width: mode === "bars" ? 0 : 2,
      paths: mode === "bars" ? uPlot.paths.bars({ size: [0.8, 40] }) : mode === "dots" ? () => null : undefined,
      points: { show: mode === "dots" ? true : undefined, size: mode === "dots" ? 10 : 5, fill: mode === "dots" ? style(heads[at].firstElementChild, "color") : undefined },
      value: (_, __, ___, place) => (place == null ? "" : say(values[at][place])),
    }));
    const byName = mode === "dots";
    const plot = new uPlot({
      width: into.clientWidth,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"),
      cursor: { drag: { x: false, y: false } },
      scales: {
        x: byName ? { time: false, range: [-0.5, rows.length - 0.5] } : { time: true },
        y: { range: (_, __, most) => [0, unit === "%" ? 1 : most > 0 ? 1.08 * most : 1] },
      },
      axes: [
        byName ? { ...axis, splits: () => names.map((_, at) => at), values: () => names } : { ...axis, values: clocks },
        { ...axis, size: 72, incrs: STEPS[unit], values: (_, splits) => splits.map(say) },
      ],
      series: [{ label: figure.querySelector("thead th").textContent, value: (_, __, ___, place) => (place == null ? "" : names[place]) }, ...series],
    }, [byName ? rows.map((_, at) => at) : rows.map((row) => Number(row.dataset.x)), ...order.map((at) => (mode === "bars" ? sums : values)[at])], into);
    const fitted = new ResizeObserver(() => plot.setSize({ width: into.clientWidth, height: HEIGHT }));
    fitted.observe(into);
    return () => { fitted.disconnect(); plot.destroy(); };
  };

  const figures = [...document.querySelectorAll(".chart")];
  if (typeof uPlot === "undefined") {  // it fails in a browser whose language it cannot read: the tables are there
    for (const figure of figures) { figure.querySelector(".canvas").hidden = true; figure.querySelector("details").open = true; }
    return;
  }
  let drawn = figures.map(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const remove of drawn) remove();
    drawn = figures.map(draw);
  });
})();
