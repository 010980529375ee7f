"use strict";
(() => {
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const tables = all("table[data-filter]");

  // Rows.
  const words = document.getElementById("filter");
  const valid = document.getElementById("valid");
  const told = document.getElementById("told");
  const texts = new Map();
  for (const table of tables) {
    for (const row of table.tBodies[0].rows) {
      texts.set(row, `${table.dataset.filter} ${row.textContent}`.toLowerCase());
    }
  }
  const figures = all("figure[data-words]");
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of texts) {
      const doubted = valid?.checked && row.dataset.doubt !== undefined;
      row.hidden = doubted || !wanted.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    for (const figure of figures) {
      const text = figure.dataset.words.toLowerCase();
      figure.hidden = !wanted.every((word) => text.includes(word));
    }
    for (const part of all("[data-part]")) {
      const rows = all("table[data-filter] tbody tr, figure[data-words]", part);
      part.hidden = rows.length > 0 && rows.every((row) => row.hidden);
    }
    told.value = wanted.length || valid?.checked ? `${shown} of ${texts.size} rows` : `${texts.size} rows`;
  };
  words.addEventListener("input", filter);
  valid?.addEventListener("change", filter);

  // Order. What is missing stands last, whichever way.
  const key = (row, at) => {
    const cell = row.cells[at];
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const text = cell.textContent.trim();
    return text === "–" ? null : text.toLowerCase();
  };
  const compare = (a, b, way) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return way * (a - b);
    return way * String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const sort = (head) => {
    const body = head.closest("table").tBodies[0];
    const before = head.getAttribute("aria-sort");
    const first = head.dataset.first;
    const other = first === "ascending" ? "descending" : "ascending";
    const now = before === first ? other : first;
    for (const one of head.parentElement.cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", now);
    const way = now === "ascending" ? 1 : -1;
    const rows = [...body.rows].map((row) => [key(row, head.cellIndex), row]);
    rows.sort(([a], [b]) => compare(a, b, way));
    body.append(...rows.map(([, row]) => row));
  };
  for (const head of all("th[data-first]")) {
    head.firstElementChild.addEventListener("click", () => sort(head));
  }

  // Copies.
  const copied = async (button) => {
    const text = button.parentElement.querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("pre"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  for (const button of all(".copy")) button.addEventListener("click", () => copied(button));

  // Values under the pointer.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const show = (text, event) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - width - 4))}px`;
    tip.style.top = `${event.clientY - height - 12 < 4 ? event.clientY + 18 : event.clientY - height - 12}px`;
  };
  const axis = (text) => {
    const [kind, from, to, label, unit] = text.split("|");
    return { kind, from: Number(from), to: Number(to), label, unit };
  };
  const value = (one, share) => one.kind === "log"
    ? one.from * (one.to / one.from) ** share
    : one.from + share * (one.to - one.from);
  const written = (number, unit) => {
    const digits = Math.abs(number) >= 100 ? 0 : Math.abs(number) >= 10 ? 1 : Math.abs(number) >= 1 ? 2 : 3;
    return `${number.toFixed(digits)} ${unit}`.trim();
  };
  const place = (one, share) => one.kind === "dates"
    ? new Date(value(one, share) * 864e5).toISOString().slice(0, 10)
    : written(value(one, share), one.unit);
  // A line may be drawn in several strokes.
  const near = (strokes, x) => {
    let best = null;
    for (const point of strokes.flatMap((stroke) => [...stroke.points])) {
      if (best === null || Math.abs(point.x - x) < Math.abs(best.x - x)) best = point;
    }
    return best;
  };
  for (const svg of all("svg.plot")) {
    const [x, y] = [axis(svg.dataset.x), axis(svg.dataset.y)];
    const [left, top, right, bottom] = svg.dataset.box.split(" ").map(Number);
    const lines = new Map();
    for (const stroke of all("polyline[data-name]:not(.behind)", svg)) {
      lines.set(stroke.dataset.name, [...lines.get(stroke.dataset.name) ?? [], stroke]);
    }
    const turns = all("[data-at]", svg).map((turn) => [Number(turn.dataset.at), turn.textContent.trim()]);
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("y1", top);
    cursor.setAttribute("y2", bottom);
    const inside = (event) => {
      const matrix = svg.getScreenCTM();
      return matrix ? new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse()) : null;
    };
    svg.addEventListener("pointermove", (event) => {
      const at = inside(event);
      const title = event.target.querySelector && event.target.closest(".m")?.querySelector("title");
      if (title) return show(title.textContent, event);
      if (!at || lines.size === 0 || at.x < left || at.x > right || at.y < top || at.y > bottom) {
        cursor.remove();
        tip.hidden = true;
        return undefined;
      }
      const rows = [...lines].map(([name, strokes]) => {
        const point = near(strokes, at.x);
        const share = (bottom - point.y) / (bottom - top);
        const here = (point.x - left) / (right - left);
        return `${name}: ${written(value(y, share), y.unit)} at ${place(x, here)}`;
      });
      rows.push(...turns.filter(([here]) => Math.abs(here - at.x) < 4).map(([, title]) => title));
      cursor.setAttribute("x1", at.x);
      cursor.setAttribute("x2", at.x);
      svg.append(cursor);
      return show(rows.join("\n"), event);
    });
    svg.addEventListener("pointerleave", () => { cursor.remove(); tip.hidden = true; });
  }
  for (const svg of all("svg.bars")) {
    svg.addEventListener("pointermove", (event) => {
      const title = event.target.querySelector("title");
      if (title && event.target !== svg) show(title.textContent, event);
      else tip.hidden = true;
    });
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  // Paper shows what is folded.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])").filter((part) => !part.closest("figure"));
    for (const part of opened) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of opened) part.open = false; });

  document.getElementById("bar").hidden = false;
  filter();
})();
