// The page's behaviour: the theme, which bokeh's plots follow, and legends whose entries hide and show their series.
// What the page's scripts share is `report`; `report.first` holds what must be done before the plots are seen.
const report = {first: []};
(() => {
  "use strict";
  const root = document.documentElement;
  const toggle = document.getElementById("theme");
  const wished = window.matchMedia("(prefers-color-scheme: dark)");
  const figures = () => Bokeh.documents.flatMap((doc) => doc.roots());
  report.figure = (name) => figures().find((one) => one.name === name);

  // What Python packed: JSON, compressed, in base64.
  report.unpack = async (id) => {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };

  // Text loses control characters, and gets an apostrophe where a spreadsheet would take it for a formula. _cell() in
  // commands/show.py does so in the terminal.
  function cell(value) {
    if (value === null || value === undefined) return "";
    let text = String(value);
    if (typeof value === "string") {
      text = text.replace(/[\t\n\v\f\r\u2028\u2029]/g, " ").replace(/[\x00-\x1f\x7f-\x9f]/g, "\ufffd");
      if (/^[=+\-@]/.test(text)) text = `'${text}`;
    }
    return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  report.download = (name, rows) => {
    const text = rows.map((row) => row.map(cell).join(",") + "\n").join("");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
    link.download = `${name}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };

  report.onDownload = (what, rows) => {
    const button = document.querySelector(`[data-download=${what}]`);
    button?.addEventListener("click", () => report.download(what, rows()));
  };

  function colours() {
    const style = getComputedStyle(root);
    return (name) => style.getPropertyValue(name).trim();
  }

  function paintAxis(axis, colour) {
    axis.setv({
      axis_label_text_color: colour("--muted"), major_label_text_color: colour("--muted"),
      axis_line_color: colour("--axis"), major_tick_line_color: colour("--axis"),
    });
  }

  function paintRenderer(renderer, colour) {
    const line = colour(renderer.tags[0]);
    const fill = renderer.tags.includes("hollow") ? colour("--card") : line;
    const glyph = renderer.glyph;
    glyph.setv("fill_color" in glyph.attributes
      ? {line_color: {value: line}, fill_color: {value: fill}} : {line_color: {value: line}});
  }

  function paint() {
    const colour = colours();
    for (const figure of figures()) {
      for (const axis of [...figure.below, ...figure.above, ...figure.left]) {
        if ("major_label_text_color" in axis.attributes) paintAxis(axis, colour);
      }
      for (const part of figure.center) {
        if ("grid_line_color" in part.attributes) part.grid_line_color = colour("--grid");
        else if (part.tags.length) part.line_color = colour(part.tags[0]);
      }
      figure.renderers.forEach((renderer) => paintRenderer(renderer, colour));
    }
  }

  function choose(dark) {
    root.dataset.theme = dark ? "dark" : "light";
    toggle.setAttribute("aria-pressed", String(dark));
    paint();
  }

  function show(button) {
    const visible = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(visible));
    const figure = figures().find((one) => one.name === button.dataset.plot);
    for (const renderer of figure.renderers) {
      if (renderer.tags.includes(button.dataset.series)) renderer.visible = visible;
    }
  }

  let chosen = false;
  toggle.addEventListener("click", () => { chosen = true; choose(root.dataset.theme !== "dark"); });
  wished.addEventListener("change", () => { if (!chosen) choose(wished.matches); });
  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => show(button));
  }
  choose(wished.matches);

  // bokeh builds its document a moment later than it is asked to; the plots are unseen until they have their colours.
  async function begin() {
    if (!Bokeh.documents.length) return requestAnimationFrame(begin);
    try {
      for (const task of report.first) await task();
    } finally {
      paint();
      root.classList.add("drawn");
    }
  }
  requestAnimationFrame(begin);
})();
