// The table of all features: search, sort, pages, the weights of the model that is chosen.
(() => {
  "use strict";
  if (!document.getElementById("packed-features")) return;
  const ROWS = 20;
  const compare = new Intl.Collator("en", {numeric: true}).compare;
  const body = document.querySelector(".features tbody");
  const search = document.getElementById("search");
  const view = {sort: "weight", direction: "other", page: 0};
  let table = null, order = [];

  function running(steps) {
    let place = 0;
    return steps.map((step) => place += step);
  }

  // Columns by position; features are by rising id.
  function unpacked(packed) {
    const ids = typeof packed.ids[0] === "string" ? packed.ids : running(packed.ids).map(String);
    const found = ids.map((id, k) => `${id} ${packed.names?.[k] ?? ""}`.toLowerCase());
    return {...packed, ids, found, every: Object.keys(packed.weights).length > 1};
  }

  function model() {
    return String(report.choice()) in table.weights ? report.choice() : table.shown;
  }

  function weigh() {
    const [steps, values] = table.weights[model()];
    table.weight = new Float64Array(table.ids.length);
    running(steps).forEach((place, k) => { table.weight[place] = values[k]; });
  }

  const ORDERS = {
    id: (a, b) => a - b,
    name: (a, b) => compare(table.names[a], table.names[b]) || a - b,
    first: (a, b) => table.first[a] - table.first[b] || a - b,
    weight: (a, b) => table.weight[a] - table.weight[b] || a - b,
  };

  function arrange() {
    const wanted = search.value.trim().toLowerCase(), by = ORDERS[view.sort];
    order = table.ids.map((_, k) => k);
    if (wanted) order = order.filter((k) => table.found[k].includes(wanted));
    if (view.direction === "other") {
      order.sort((a, b) => Math.abs(table.weight[b]) - Math.abs(table.weight[a]) || a - b);
    } else {
      order.sort(view.direction === "ascending" ? by : (a, b) => by(b, a));
    }
    view.page = 0;
    show();
  }

  function signed(weight) {
    if (!weight) return "0";
    return (weight < 0 ? "−" : "+") + Math.abs(weight).toPrecision(4);
  }

  function rowOf(k) {
    const row = document.createElement("tr"), head = document.createElement("th");
    head.scope = "row";
    head.textContent = table.ids[k];
    row.append(head);
    const cells = [signed(table.weight[k]), table.lambdas[table.first[k]] ?? "–"];
    for (const text of table.names ? [table.names[k] || "–", ...cells] : cells) {
      row.insertCell().textContent = text;
    }
    if (table.names) row.cells[1].className = "text";
    return row;
  }

  function show() {
    const pages = Math.max(Math.ceil(order.length / ROWS), 1), count = (value) => value.toLocaleString("en");
    view.page = Math.min(Math.max(view.page, 0), pages - 1);
    body.replaceChildren(...order.slice(view.page * ROWS, (view.page + 1) * ROWS).map(rowOf));
    document.getElementById("features-page").textContent = `Page ${count(view.page + 1)} of ${count(pages)}`;
    document.getElementById("features-count").textContent = `${count(order.length)} feature${order.length === 1 ? "" : "s"}`;
    document.querySelector(".pages").hidden = pages === 1;
    for (const button of document.querySelectorAll("[data-page]")) {
      const back = ["first", "before"].includes(button.dataset.page);
      button.disabled = view.page === (back ? 0 : pages - 1);
    }
    for (const head of document.querySelectorAll("[data-sort]")) {
      head.setAttribute("aria-sort", head.dataset.sort === view.sort ? view.direction : "none");
    }
  }

  function caption() {
    const used = table.weights[model()][1].length, count = (value) => value.toLocaleString("en");
    const known = table.ids.length === table.all ? `${count(table.all)} features that have a weight in a model`
      : `${count(table.ids.length)} features that are strongest, of ${count(table.all)} that have a weight in a model`;
    const others = table.every || table.lambdas.length === 1 ? "" : " Weights of other models: dask-submit show RUN --csv --lambda-index K.";
    document.getElementById("features-caption").textContent =
      `Weights in model ${model()}, to four digits: ${count(used)} of ${known}.${others}`;
  }

  // Weights by size first, then from the largest, then from the smallest.
  const NEXT = {other: "descending", descending: "ascending", ascending: "other"};

  function sortBy(key) {
    if (key !== view.sort) view.direction = key === "weight" ? "other" : "ascending";
    else if (key === "weight") view.direction = NEXT[view.direction];
    else view.direction = view.direction === "ascending" ? "descending" : "ascending";
    view.sort = key;
    arrange();
  }

  function listen() {
    for (const head of document.querySelectorAll("[data-sort]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      button.addEventListener("click", () => sortBy(head.dataset.sort));
      head.replaceChildren(button);
    }
    search.addEventListener("input", arrange);
    const to = {first: () => 0, before: () => view.page - 1, after: () => view.page + 1, last: () => order.length};
    for (const button of document.querySelectorAll("[data-page]")) {
      button.addEventListener("click", () => { view.page = to[button.dataset.page](); show(); });
    }
    report.onDownload("features", () => [
      ["feature", ...(table.names ? ["name"] : []), `weight_in_model_${model()}`, "first_model"],
      ...order.map((k) => [Number(table.ids[k]) <= Number.MAX_SAFE_INTEGER ? Number(table.ids[k]) : table.ids[k],
        ...(table.names ? [table.names[k]] : []), table.weight[k], table.first[k]]),
    ]);
    report.onChoice(update);
  }

  function update() {
    weigh();
    caption();
    arrange();
  }

  report.first.push(async () => {
    table = unpacked(await report.unpack("packed-features"));
    if (!table.every) document.querySelector("#features .control").hidden = true;
    listen();
    update();
  });
})();
