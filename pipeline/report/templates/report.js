// The page's behaviour: the theme, which bokeh's plots follow, and legends whose entries hide and show their series.
(() => {
  "use strict";
  const root = document.documentElement;
  const toggle = document.getElementById("theme");
  const wished = window.matchMedia("(prefers-color-scheme: dark)");
  const figures = () => Bokeh.documents.flatMap((doc) => doc.roots());

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
  function begin() {
    if (!Bokeh.documents.length) return requestAnimationFrame(begin);
    paint();
    root.classList.add("drawn");
  }
  begin();
})();
