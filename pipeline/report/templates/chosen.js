// The model that is chosen: its curves, drawn from bins of scores by class, and its confusion matrix at a threshold.
(() => {
  "use strict";
  const BARS = 20, TENTHS = 10;
  const chosen = {model: 0, judgement: 0, threshold: 50};
  const changed = [];
  let packed = null;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const put = (id, text) => { document.getElementById(id).textContent = text; };
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const share = (part, whole) => whole > 0 ? part / whole : NaN;

  // Other scripts hear of the model that is chosen.
  report.onChoice = (listener) => { changed.push(listener); };
  report.choice = () => chosen.model;

  function amount(value) {
    const digits = packed.judgements[chosen.judgement].weighted && value < 1e6 ? 1 : 0;
    return value.toLocaleString("en", {maximumFractionDigits: digits});
  }

  function rate(value, digits = 1) {
    return Number.isFinite(value) ? `${(100 * value).toFixed(digits)}\u00a0%` : "–";
  }

  // Running sums from the highest score on: what is called positive when a bin is the last that is.
  function sumsOf(bins) {
    let tp = 0, fp = 0;
    const steps = bins.positives.map((positives, k) => {
      tp += positives;
      fp += bins.negatives[k];
      return {tp, fp, above: bins.above[k], probability: bins.probability[k]};
    });
    return {steps: steps.filter((one) => one.tp + one.fp > 0), positives: tp, negatives: fp};
  }

  // A source of a plot, by its series' key; columns of rows.
  function fill(figure, key, rows, columns) {
    const renderer = report.figure(figure).renderers.find((one) => one.tags[1] === key);
    renderer.data_source.data = Object.fromEntries(columns.map((name) => [name, rows.map((row) => row[name])]));
  }

  const XY = ["x", "y"], CURVE = ["x", "y", "threshold", "called"];

  function drawCurve(figure, points, chance) {
    fill(figure, "curve", points, CURVE);
    fill(figure, "chance", points.length ? [{x: 0, y: chance[0]}, {x: 1, y: chance[1]}] : [], XY);
  }

  function drawRanks({steps, positives, negatives}) {
    const defined = positives > 0 && negatives > 0;
    const points = (x, y) => !defined ? [] : steps.map((one) => ({
      x: x(one), y: y(one), threshold: one.probability, called: `${amount(one.tp + one.fp)} called positive`,
    }));
    const precision = points((one) => one.tp / positives, (one) => one.tp / (one.tp + one.fp));
    const roc = points((one) => one.fp / negatives, (one) => one.tp / positives);
    drawCurve("precision", precision.slice(0, 1).map((one) => ({...one, x: 0})).concat(precision),
      Array(2).fill(share(positives, positives + negatives)));
    drawCurve("roc", roc.slice(0, 1).map((one) => ({...one, x: 0, y: 0})).concat(roc), [0, 1]);
  }

  function drawCalibration(bins) {
    const total = sum(bins.positives) + sum(bins.negatives), points = [];
    let weight = 0, positives = 0, expected = 0;
    bins.positives.forEach((value, k) => {
      weight += value + bins.negatives[k];
      positives += value;
      expected += bins.expected[k];
      if (weight > 0 && (weight >= total / TENTHS || k === bins.positives.length - 1)) {
        points.push({x: expected / weight, y: positives / weight, weight_text: amount(weight)});
        weight = positives = expected = 0;
      }
    });
    fill("calibration", "curve", points.reverse(), ["x", "y", "weight_text"]);
    fill("calibration", "chance", [{x: 0, y: 0}, {x: 1, y: 1}], XY);
  }

  function drawScores(bins) {
    ["positives", "negatives"].forEach((key, side) => {
      const tops = Array(BARS).fill(0), total = sum(bins[key]);
      bins[key].forEach((value, k) => { tops[Math.floor(Math.max(bins.above[k] - 1, 0) / (100 / BARS))] += value; });
      const bars = tops.map((value, k) => ({
        x: (k + 0.5) / BARS + (side ? 0.0105 : -0.0105), top: share(value, total), text: amount(value),
        range: `${key === "positives" ? "positive" : "negative"}, ${100 * k / BARS} to ${100 * (k + 1) / BARS} %`,
      }));
      fill("scores", key, bars.filter((one) => one.top > 0), ["x", "top", "range", "text"]);
    });
  }

  function clear() {
    for (const name of ["precision", "roc", "calibration", "scores"]) {
      for (const renderer of report.figure(name).renderers) {
        const {data} = renderer.data_source;
        renderer.data_source.data = Object.fromEntries(Object.keys(data).map((column) => [column, []]));
      }
    }
  }

  function confusion({steps, positives, negatives}, threshold) {
    const {tp, fp} = steps.findLast((one) => one.above > threshold) ?? {tp: 0, fp: 0};
    return {tp, fp, fn: positives - tp, tn: negatives - fp};
  }

  function rates({tp, fp, fn, tn}) {
    const precision = share(tp, tp + fp), recall = share(tp, tp + fn);
    return {
      precision, recall, specificity: share(tn, tn + fp), accuracy: share(tp + tn, tp + fp + fn + tn),
      f1: share(2 * tp, 2 * tp + fp + fn),
    };
  }

  function showConfusion(sums) {
    const found = sums && confusion(sums, chosen.threshold);
    for (const key of ["tp", "fp", "fn", "tn"]) {
      const place = document.getElementById(key);
      place.textContent = found ? amount(found[key]) : "–";
      if (!found) continue;
      const part = document.createElement("small");
      part.textContent = rate(share(found[key], sums.positives + sums.negatives));
      place.append(part);
    }
    for (const [key, value] of Object.entries(rates(found ?? {}))) put(`rate-${key}`, rate(value));
    put("threshold-value", (chosen.threshold / 100).toFixed(2));
    const {precision, recall, specificity} = rates(found ?? {});
    const ring = (x, y) => Number.isFinite(x) && Number.isFinite(y) ? [{x, y}] : [];
    fill("precision", "threshold", ring(recall, precision), XY);
    fill("roc", "threshold", ring(1 - specificity, recall), XY);
  }

  function sums() {
    const bins = packed.judgements[chosen.judgement]?.curves[chosen.model];
    return bins ? sumsOf(bins) : null;
  }

  function words(found, judgement) {
    if (!found) return "This model was fitted after the evaluation: evaluate the run again.";
    const figures = `Model ${chosen.model} on ${judgement.label}: ${judgement.figures[chosen.model]}.`;
    if (found.positives > 0 && found.negatives > 0) return figures;
    return `${figures} All of these examples have one label: precision, recall and ROC say nothing.`;
  }

  function show() {
    for (const slider of all(".chooses-model")) {
      slider.value = chosen.model;
      slider.setAttribute("aria-valuetext", `model ${chosen.model}, ${packed.models[chosen.model]}`);
    }
    for (const place of all(".chosen-number")) place.textContent = chosen.model;
    for (const place of all(".chosen-text")) place.textContent = packed.models[chosen.model];
    all(".models tbody tr").forEach((row, k) => row.classList.toggle("chosen", k === chosen.model));
    changed.forEach((listener) => listener());
    const judgement = packed.judgements[chosen.judgement];
    if (!judgement) return;
    const bins = judgement.curves[chosen.model], found = sums();
    clear();
    if (bins) {
      drawRanks(found);
      drawCalibration(bins);
      drawScores(bins);
    }
    showConfusion(found);
    put("chosen-figures", words(found, judgement));
    for (const name of ["precision", "roc", "calibration", "scores"]) {
      const card = document.querySelector(`[aria-labelledby=${name}-title]`);
      card.querySelector(".plot").ariaLabel = `${card.querySelector("h3").textContent}. ${words(found, judgement)}`;
    }
  }

  function choose(model) {
    if (model === chosen.model) return;
    chosen.model = model;
    show();
  }

  function thresholds() {
    const found = sums();
    const rows = (found?.steps ?? []).map((one) => {
      const {tp, fp} = one, fn = found.positives - tp, tn = found.negatives - fp;
      const of = rates({tp, fp, fn, tn});
      return [one.probability, tp, fp, fn, tn, of.precision, of.recall, 1 - of.specificity].map(
        (value) => Number.isFinite(value) ? value : null);
    });
    const head = ["probability_from", "true_positives", "false_positives", "false_negatives", "true_negatives"];
    return [[...head, "precision", "recall", "false_positive_rate"], ...rows];
  }

  // Along the path, a click chooses the nearest model.
  function listenToPlots() {
    const lambdas = packed.rows.map((row) => row[packed.columns.indexOf("lambda")]);
    const range = report.figure("nonzeros").x_range;
    for (const figure of Bokeh.documents[0].roots().filter((one) => one.x_range === range)) {
      figure.on_event("tap", ({x}) => {
        const away = lambdas.map((lambda) => Math.abs(Math.log(lambda / x)));
        choose(away.indexOf(Math.min(...away)));
      });
    }
  }

  function listen() {
    for (const slider of all(".chooses-model")) slider.addEventListener("input", () => choose(Number(slider.value)));
    for (const button of all("[name=judgement]")) {
      button.addEventListener("change", () => { chosen.judgement = Number(button.value); show(); });
    }
    document.getElementById("threshold")?.addEventListener("input", (event) => {
      chosen.threshold = Number(event.target.value);
      showConfusion(sums());
    });
    document.querySelector(".models").classList.add("live");
    all(".models tbody tr").forEach((row, k) => row.addEventListener("click", () => choose(k)));
    report.onDownload("models", () => [packed.columns, ...packed.rows]);
    report.onDownload("curve", thresholds);
    listenToPlots();
  }

  report.first.push(async () => {
    packed = await report.unpack("packed-models");
    chosen.model = packed.shown;
    listen();
    show();
  });
})();
