// Draws each `.chart` from the table in it, which has the same numbers for those who do not see the plot.
(() => {
  const HEIGHT = 200, LETTER = 7, LABEL = 36, CLOCK = 80;  // pixels
  const DASHES = [[], [8, 6], [2, 5]], BORDERS = ["solid", "dashed", "dotted"];  // lines that lie on each other are told apart
  const style = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();
  const number = (cell) => (cell.dataset.y === "" ? null : Number(cell.dataset.y));
  const two = (value) => String(value).padStart(2, "0");
  const spell = (seconds) => {  // as the tables and the command line do, and more exactly below 0.1 s
    if (seconds > 0 && seconds < 0.0995) return `${Math.ceil(1000 * seconds)} ms`;
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
  const STEPS = { "": COUNTS, "%": [0.25], s: [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400] };
  const LEAST = { "": 1, "%": 1, s: 0.01 };  // that the y axis reaches

  const alone = (series) => series.flatMap((value, at) => (value !== null && series[at - 1] == null && series[at + 1] == null ? [at] : []));  // no line shows these

  const draw = (figure) => {
    const [into, said] = [".canvas", ".at"].map((part) => figure.querySelector(part));
    const heads = [...figure.querySelectorAll("thead th")].slice(1);
    const rows = [...figure.querySelectorAll("tbody tr")];
    const names = rows.map((row) => row.cells[0].textContent);
    const values = heads.map((_, at) => rows.map((row) => number(row.cells[at + 1])));
    const { mode, unit } = figure.dataset;
    const [bars, dots, byName] = [mode === "bars", mode === "dots", rows[0].dataset.x === undefined];
    const say = spoken(unit);
    // Bars stand on each other: the first series at the bottom, drawn last.
    const sums = values.map((_, at) => rows.map((_, row) => values.slice(0, at + 1).reduce((sum, each) => sum + each[row], 0)));
    const order = heads.map((_, at) => (bars ? heads.length - 1 - at : at));
    // Dots stand beside each other, so that each has an x of its own.
    const beside = dots ? heads.length : 1;
    const places = rows.flatMap((row, at) => [...Array(beside).keys()].map((dot) => (byName ? at : Number(row.dataset.x)) + 0.16 * (dot - (beside - 1) / 2)));
    const drawn = (bars ? sums : values).map((series, at) => (dots ? series.flatMap((value) => heads.map((_, dot) => (dot === at ? value : null))) : series));
    const half = rows.length > 1 ? (places.at(-1) - places[0]) / (rows.length - 1) / 2 : 30;
    const room = (plot) => plot.bbox.width / devicePixelRatio / rows.length;  // of a name, in pixels
    const step = (plot) => Math.ceil(LABEL / room(plot));
    const named = (plot, splits) => {  // a word per line
      const letters = Math.floor((step(plot) * room(plot)) / LETTER);
      return splits.map((at) => names[at].split(" ").map((word) => (word.length > letters ? `${word.slice(0, letters - 1)}…` : word)).join("\n"));
    };
    const ink = (at) => style(heads[at].firstElementChild, "color");
    const quiet = style(into, "color");
    const axis = { stroke: quiet, grid: { stroke: style(into, "border-top-color"), width: 1 }, ticks: { show: false }, font: `12px ${style(into, "font-family")}` };
    const plot = new uPlot({
      width: into.clientWidth,
      height: HEIGHT,
      padding: [null, 32, null, null],
      tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"),
      cursor: { drag: { x: false, y: false } },
      legend: { live: false, markers: { dash: (_, at) => (mode === "lines" ? BORDERS[at - 1] : "solid") } },
      hooks: {
        setCursor: [({ cursor }) => {
          const row = cursor.idx == null ? null : Math.floor(cursor.idx / beside);
          said.textContent = row == null ? "" : `${names[row]}: ${heads.map((head, at) => `${head.textContent} ${say(values[at][row])}`).join(", ")}`;
        }],
      },
      scales: {
        x: byName ? { time: false, range: [-0.5, rows.length - 0.5] } : { time: true, range: (_, first, last) => [first - half, last + half] },
        y: { range: (_, __, most) => (unit === "%" ? [-0.06, 1.06] : [0, Math.max(1.08 * most, LEAST[unit])]) },
      },
      axes: [
        byName
          ? { ...axis, size: 42, grid: { show: false }, splits: (plot) => names.map((_, at) => at).filter((at) => at % step(plot) === 0), values: named }
          : { ...axis, size: 42, space: CLOCK, values: clocks },
        { ...axis, size: 72, space: 24, incrs: STEPS[unit], values: (_, splits, __, ___, step) => splits.map((at) => (unit === "s" && step < 0.1 ? `${Math.round(1000 * at)} ms` : say(at))) },
      ],
      series: [{}, ...order.map((at) => ({
        label: heads[at].textContent,
        stroke: ink(at),
        fill: mode === "lines" ? undefined : ink(at),
        width: bars ? 0 : 2,
        dash: mode === "lines" ? DASHES[at] : undefined,
        paths: bars ? uPlot.paths.bars({ size: [0.8, 40] }) : dots ? () => null : undefined,
        points: { show: !bars, size: dots ? 10 : 9 - 2 * at, fill: dots ? ink(at) : undefined, filter: mode === "lines" ? () => alone(drawn[at]) : undefined },
      }))],
    }, [places, ...order.map((at) => drawn[at])], into);
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
