
(() => {
  const { texts, facts, figures, runs, rows } = JSON.parse(document.getElementById("data").textContent);
  const MISSING = "–";
  const UNKNOWN = "unknown";
  const PAGE_ROWS = 60;
  const MAIN_FIGURES = 4;
  const at = {
    run: 0, host: 1, gpu: 2, engine: 3, version: 4, model: 5, tp: 6, load: 7, state: 8, verdict: 9, origin: 10, starts: 11,
    hostFacts: 12, loadFacts: 13, settings: 14, figures: 15, recipe: 16,
  };
  const text = (id) => (id < 0 ? MISSING : texts[id]);
  const field = (row, name) => text(row[at[name]]);
  const runName = (row) => texts[runs[row[at.run]][0]];
  const hostOf = (row) => field(row, "host") + (row[at.gpu] < 0 ? "" : ` (${field(row, "gpu")})`);
  const isInvalid = (figure) => figure !== 0 && figure[1] === 2;
  const written = (value) => value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
  const interval = (figure) => (figure.length > 2 ? `${written(figure[2])} to ${written(figure[3])}` : "");

  const element = (name, content, attributes = {}) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...[content].flat());
    return made;
  };

  // Columns: the text and the sort key of each.
  const plain = (read) => ({ read, key: (row) => { const text = read(row); return text === MISSING ? null : text.toLowerCase(); } });
  const dateOf = (row) => texts[runs[row[at.run]][2]];
  const engineOf = (row) => field(row, "engine") + (row[at.version] < 0 ? "" : ` ${field(row, "version")}`);
  const pageOf = (row, content) => element("a", content, { href: texts[runs[row[at.run]][1]], title: texts[runs[row[at.run]][3]] });
  const marks = (names) => names.flatMap((name) => [" ", element("span", name, { class: `mark ${name}` })]);
  // `cell`, where there is one, draws more than the text.
  const columns = [
    plain(engineOf),
    plain((row) => `${field(row, "model")} · ${field(row, "load")}`),
  ];
  for (let which = 0; which < MAIN_FIGURES; which += 1) {
    const figure = (row) => row[at.figures][which];
    columns.push({
      cell: (row) => figureCell(row, figure(row)),
      read: (row) => (figure(row) === 0 ? MISSING : written(figure(row)[0])),
      // What is invalid stands last, like what is missing.
      key: (row) => (figure(row) === 0 || isInvalid(figure(row)) ? null : figure(row)[0]),
    });
  }
  columns.push(
    {
      ...plain((row) => field(row, "verdict")),
      cell: (row) => element("td", field(row, "verdict"), { class: `verdict ${stateClass(row)}`, title: field(row, "verdict") }),
    },
    { read: (row) => (row[at.tp] < 0 ? MISSING : String(row[at.tp])), key: (row) => (row[at.tp] < 0 ? null : row[at.tp]) },
    plain(dateOf),
    { ...plain(hostOf), cell: (row) => element("td", [hostOf(row), ...marks(field(row, "origin").split(", ").filter(Boolean))]) },
    { ...plain(runName), cell: (row) => element("td", pageOf(row, runName(row))) },
  );
  const searched = rows.map((row) =>
    [...columns.map((column) => column.read(row)), field(row, "origin")].join(" ").toLowerCase());

  // Rows that fit the words, in their order.
  const words = document.getElementById("filter");
  const valid = document.getElementById("valid");
  const told = document.getElementById("told");
  const body = document.getElementById("rows").tBodies[0];
  const more = document.getElementById("more");
  const FLAGGED = new Set(["suspect", "invalid", MISSING]);
  let order = rows.map((_, index) => index);
  let limit = PAGE_ROWS;
  const chosen = [];

  const stateClass = (row) => ({ "not judged": UNKNOWN, [MISSING]: "failed" })[field(row, "state")] ?? field(row, "state");
  const figureCell = (row, figure) => {
    const cell = element("td", figure === 0 ? MISSING : written(figure[0]), { class: isInvalid(figure) ? "right void" : "right" });
    if (figure !== 0) {
      const starts = row[at.starts];
      cell.title = figure.length > 2
        ? `${starts} starts, 95 % interval ${interval(figure)}; ${field(row, "verdict")}`
        : `${starts} ${starts === 1 ? "start" : "starts"}, no interval; ${field(row, "verdict")}`;
    }
    return cell;
  };
  const nameOf = (row) => [runName(row), field(row, "engine"), field(row, "version"), field(row, "model"), field(row, "load")].join(", ");
  const drawRow = (index) => {
    const row = rows[index];
    const pick = element("input", [], { type: "checkbox", "aria-label": `Compare ${nameOf(row)}` });
    pick.checked = chosen.includes(index);
    pick.addEventListener("change", () => choose(index, pick.checked));
    const doubt = marks([field(row, "state")].filter((state) => ["suspect", "invalid"].includes(state)));
    const head = element("th", [pick, pageOf(row, engineOf(row)), ...doubt], { scope: "row" });
    const cells = columns.slice(1).map((column) => column.cell?.(row) ?? element("td", column.read(row)));
    return element("tr", [head, ...cells], chosen.includes(index) ? { class: "chosen" } : {});
  };
  const draw = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (index) => wanted.every((word) => searched[index].includes(word))
      && !(valid.checked && FLAGGED.has(field(rows[index], "state")));
    const shown = order.filter(fits);
    body.replaceChildren(...shown.slice(0, limit).map(drawRow));
    const left = shown.length - Math.min(limit, shown.length);
    more.hidden = left === 0;
    more.firstElementChild.textContent = `Show ${Math.min(left, PAGE_ROWS)} more of ${left} rows`;
    told.value = shown.length === rows.length ? `${rows.length} rows` : `${shown.length} of ${rows.length} rows`;
  };
  const redraw = () => { limit = PAGE_ROWS; draw(); };
  words.addEventListener("input", redraw);
  valid.addEventListener("change", redraw);
  more.firstElementChild.addEventListener("click", () => { limit += PAGE_ROWS; draw(); });

  const collator = new Intl.Collator("en", { numeric: true });
  const heads = [...document.querySelectorAll("#rows th[data-order]")];
  heads.forEach((head, which) => head.firstElementChild.addEventListener("click", () => {
    const first = head.dataset.order;
    const other = first === "ascending" ? "descending" : "ascending";
    const now = head.getAttribute("aria-sort") === first ? other : first;
    for (const one of heads) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", now);
    const way = now === "ascending" ? 1 : -1;
    const keys = rows.map(columns[which].key);
    const compare = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return way * (typeof a === "number" ? a - b : collator.compare(a, b));
    };
    order = rows.map((_, index) => index).sort((a, b) => compare(keys[a], keys[b]));
    redraw();
  }));

  // Two rows side by side.
  const panel = document.getElementById("compare");
  const compared = document.getElementById("compared");
  const hint = document.getElementById("hint");
  const HINT = hint.textContent;

  const pairs = (id) => new Map(facts[id].map(([name, value]) => [texts[name], texts[value]]));
  // Every name with both values, where they differ or nothing says that they are equal.
  const differing = (kind, first, second, isCounted = () => true) => {
    const [one, two] = [pairs(first), pairs(second)];
    const names = [...new Set([...one.keys(), ...two.keys()])].sort();
    const value = (side, name) => side.get(name) ?? MISSING;
    return names
      .filter((name) => isCounted(name, one.has(name) && two.has(name)))
      .map((name) => [kind, name, value(one, name), value(two, name)])
      .filter(([, , a, b]) => a !== b || a === UNKNOWN);
  };
  // Flags and variables of another recipe mean something else.
  const isCommon = (name, isInBoth) => isInBoth && !name.startsWith("-") && !name.startsWith("variable ");
  const isOneRecipe = (a, b) => a[at.recipe] === b[at.recipe];
  const differences = (a, b) => [
    ...differing("host", a[at.hostFacts], b[at.hostFacts]),
    ...differing("load", a[at.loadFacts], b[at.loadFacts]),
    ...differing("settings", a[at.settings], b[at.settings], isOneRecipe(a, b) ? undefined : isCommon),
  ];
  const doubts = (a, b) => [["A", a], ["B", b]]
    .filter(([, row]) => field(row, "state") !== "valid")
    .map(([side, row]) => `${side} is ${field(row, "verdict")}`);

  const overlapNote = (a, b, isAlike, isTail) => {
    if (a === 0 || b === 0) return MISSING;
    if (isInvalid(a) || isInvalid(b)) return "invalid: no ratio";
    if (a.length < 4 || b.length < 4) return "a side has no interval";
    if (a[2] <= b[3] && b[2] <= a[3]) return "intervals overlap";
    if (isTail) return "a tail percentile; few requests decide it";
    return isAlike ? `intervals apart, ${b[0] > a[0] ? "B" : "A"} is higher` : "intervals apart";
  };
  const sideOf = (side, row) => {
    const version = row[at.version] < 0 ? "" : ` ${field(row, "version")}`;
    return [side, " ", element("span", `${field(row, "engine")}${version}`, { class: "unit" })];
  };
  const figureTable = (a, b, isAlike) => {
    const cell = (figure) => {
      if (figure === 0) return element("td", MISSING, { class: "right" });
      const range = interval(figure);
      const parts = [written(figure[0]), ...(range ? [element("span", ` (${range})`, { class: "unit" })] : [])];
      return element("td", parts, { class: isInvalid(figure) ? "right void" : "right" });
    };
    const lines = figures.map(({ label, unit, higher }, which) => {
      const [one, two] = [a[at.figures][which], b[at.figures][which]];
      const isRatio = one !== 0 && two !== 0 && !isInvalid(one) && !isInvalid(two) && one[0] > 0;
      const better = higher === null ? "" : higher ? "higher is better" : "lower is better";
      return element("tr", [
        element("th", [label, " ", element("span", unit, { class: "unit" })], { scope: "row" }),
        cell(one),
        cell(two),
        element("td", isRatio ? (two[0] / one[0]).toFixed(3) : MISSING, { class: "right" }),
        element("td", overlapNote(one, two, isAlike, label.startsWith("p99"))),
        element("td", better),
      ]);
    });
    return table("Figures with the 95 % interval over starts", ["figure", sideOf("A", a), sideOf("B", b), "B / A", "intervals", "direction"], lines, [1, 2, 3]);
  };
  const table = (caption, heads, lines, right = []) => {
    const head = element("tr", heads.map((head, which) =>
      element("th", head, right.includes(which) ? { scope: "col", class: "right" } : { scope: "col" })));
    const made = element("table", [element("caption", caption), element("thead", head), element("tbody", lines)]);
    return element("div", made, { class: "scroll", role: "region", tabindex: "0", "aria-label": caption });
  };
  const rowTable = (a, b) => {
    const shown = [
      ["run", runName], ["date", dateOf], ["host (GPU)", hostOf], ["engine", (row) => field(row, "engine")],
      ["version", (row) => field(row, "version")], ["model", (row) => field(row, "model")], ["scenario and load", (row) => field(row, "load")],
      ["starts", (row) => String(row[at.starts])], ["verdict", (row) => field(row, "verdict")],
      ["origin", (row) => field(row, "origin") || "measured"], ["measured with", (row) => texts[runs[row[at.run]][3]]],
    ];
    const lines = shown.map(([name, read]) => {
      const [one, two] = [read(a), read(b)];
      const link = (row, content) => (name === "run" ? element("a", content, { href: texts[runs[row[at.run]][1]] }) : content);
      return element("tr", [
        element("th", name, { scope: "row" }),
        element("td", link(a, one), { class: "long" }),
        element("td", link(b, two), { class: "long" }),
      ]);
    });
    return table("The two rows", ["", "A", "B"], lines);
  };
  const claim = (a, b, found, doubted) => {
    const isAlike = found.length + doubted.length === 0;
    const code = (content) => element("code", content);
    const decided = runName(a) === runName(b)
      ? ["The page of the run and ", code("matrix report"), " have its verdicts."]
      : [code(`matrix compare ${runName(a)} ${runName(b)}`), " gives a verdict where one is possible."];
    const begin = isAlike
      ? `Host, load and ${isOneRecipe(a, b) ? "settings" : "the settings that both engines have"} are equal. These are two single rows all the same: intervals of single figures are no verdict. `
      : `Single figures, without a verdict: ${[...(found.length ? [found.length === 1 ? "1 condition differs or is unknown" : `${found.length} conditions differ or are unknown`] : []), ...doubted].join("; ")}. `;
    return element("p", [begin, ...decided], { class: isAlike ? "claim alike" : "claim", role: "status" });
  };
  const drawCompared = () => {
    panel.hidden = chosen.length < 2;
    hint.textContent = chosen.length === 1 ? `Chosen: ${nameOf(rows[chosen[0]])}. Check a second row.` : HINT;
    if (panel.hidden) return compared.replaceChildren();
    const [a, b] = chosen.map((index) => rows[index]);
    const found = differences(a, b);
    const doubted = doubts(a, b);
    const isAlike = found.length + doubted.length === 0;
    const button = (name, act) => {
      const made = element("button", name, { type: "button", class: "plain" });
      made.addEventListener("click", act);
      return made;
    };
    const tools = element("div", [
      button("Swap", () => { chosen.reverse(); drawCompared(); }),
      button("Close", () => { chosen.length = 0; draw(); drawCompared(); hint.scrollIntoView({ block: "nearest" }); }),
    ], { class: "tools" });
    const lines = found.map(([kind, name, one, two]) => element("tr", [
      element("th", `${kind}: ${name}`, { scope: "row" }),
      element("td", one, { class: "long" }),
      element("td", two, { class: "long" }),
    ]));
    const parts = [claim(a, b, found, doubted), figureTable(a, b, isAlike), rowTable(a, b), tools];
    if (lines.length) parts.splice(2, 0, table("What differs, or is not known to be equal", ["condition", "A", "B"], lines));
    compared.replaceChildren(...parts);
    return panel.scrollIntoView({ block: "nearest" });
  };
  function choose(index, isChosen) {
    const place = chosen.indexOf(index);
    if (place >= 0) chosen.splice(place, 1);
    if (isChosen) chosen.push(index);
    if (chosen.length > 2) chosen.shift();
    const focused = document.activeElement?.getAttribute("aria-label");
    draw();
    drawCompared();
    // The row was drawn again, so the focus is put back.
    [...body.querySelectorAll("input")].find((input) => input.getAttribute("aria-label") === focused)?.focus({ preventScroll: true });
  }

  // Figures over dates: one at a time.
  const figure = document.getElementById("figure");
  const chooseFigure = () => {
    for (const group of document.querySelectorAll(".group")) group.hidden = group.id !== figure.value;
  };
  if (figure) {
    figure.addEventListener("change", chooseFigure);
    document.getElementById("choice").hidden = false;
    chooseFigure();
  }
  hint.hidden = false;
  draw();
})();
