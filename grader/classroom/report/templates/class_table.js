"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const make = (tag, text, style) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (style) made.className = style;
    return made;
  };
  const named = (person) => make("bdi", person[1] || person[0]);

  // -- who else ------------------------------------------------------------------------------------

  for (const item of document.querySelectorAll("[data-more]")) {
    const places = data.more[item.dataset.more];
    const button = make("button", item.textContent);
    button.type = "button";
    button.addEventListener("click", () => {
      const others = places.map((place) => {
        const other = make("li");
        other.append(named(data.people[place]));
        return other;
      });
      others[0].tabIndex = -1;
      item.replaceWith(...others);
      others[0].focus();
    });
    item.replaceChildren(button);
  }

  // -- the table -----------------------------------------------------------------------------------

  const signs = new Map(data.statuses.map(([mark, words, value], order) => [mark, { words, value, order }]));
  const collator = new Intl.Collator("en", { numeric: true });
  const table = document.querySelector("table.cells");
  const state = { lab: 0, section: "", column: "name", descending: false };
  let rows = [];

  const read = (packed, place, tasks) => {
    const row = { place, person: data.people[place], mark: null, late: 0, cells: [] };
    if (!packed) return row;
    const [marks, mark, late, odd] = packed.split(";");
    const points = new Map(odd ? odd.split(",").map((pair) => pair.split(":")) : []);
    row.mark = mark === "" ? null : Number(mark);
    row.late = Number(late);
    row.cells = [...marks].map((sign, at) => ({
      sign,
      points: points.get(String(at)) ?? (signs.get(sign).value === "done" ? tasks[at][1] : "0"),
    }));
    return row;
  };

  const drawRow = (row, tasks) => {
    const line = make("tr");
    const head = make("th");
    head.scope = "row";
    head.append(named(row.person));
    if (row.person[1]) head.append(make("span", row.person[0], "soft"));
    line.append(head);
    line.append(make("td", row.mark === null ? "–" : String(row.mark), "num"));
    line.append(make("td", row.late ? `${row.late} d` : "", "num"));
    tasks.forEach((task, at) => {
      const cell = row.cells[at];
      const box = make("td");
      if (cell) {
        const { words, value } = signs.get(cell.sign);
        box.className = `s s-${value}`;
        const sign = make("span", cell.sign);
        sign.setAttribute("aria-hidden", "true");
        box.append(sign);
        if (value === "partial") {
          const points = make("small", cell.points);
          points.setAttribute("aria-hidden", "true");
          box.append(points);
        }
        box.append(make("span", `${words}, ${cell.points} of ${task[1]}`, "vh"));
      }
      line.append(box);
    });
    if (hasSections) line.append(make("td", row.person[2], "section"));
    return line;
  };

  const hasSections = data.people.some((person) => person[2]);
  const columns = (lab) => [
    ["name", "Name", ""],
    ["mark", `Mark of ${lab.max}`, "num"],
    ["late", "Late", "num"],
    ...lab.tasks.map(([id], at) => [at, id, "task"]),
    ...(hasSections ? [["section", "Section", "section"]] : []),
  ];

  const key = (row) => {
    if (state.column === "name") return row.person[1] || row.person[0];
    if (state.column === "section") return row.person[2];
    if (state.column === "mark") return row.mark;
    if (state.column === "late") return row.cells.length ? row.late : null;
    const cell = row.cells[state.column];
    return cell ? Number(cell.points) - signs.get(cell.sign).order / 1000 : null;
  };

  // Who has nothing comes last, in either direction; who is equal stands by name.
  const compare = (one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return (a === null) - (b === null) || byName(one, other);
    const found = typeof a === "string" ? collator.compare(a, b) : a - b;
    return (state.descending ? -found : found) || byName(one, other);
  };
  const byName = (one, other) =>
    collator.compare(one.person[1] || one.person[0], other.person[1] || other.person[0]) ||
    one.place - other.place;

  const order = () => {
    const shown = rows.filter((row) => !state.section || row.person[2] === state.section);
    shown.sort(compare);
    table.tBodies[0].replaceChildren(...shown.map((row) => row.line));
    const lab = data.labs[state.lab];
    for (const head of table.tHead.rows[0].cells) {
      const mine = head.dataset.column === String(state.column);
      if (mine) head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    const column = columns(lab).find(([id]) => id === state.column)[1];
    const way = state.descending ? "descending" : "ascending";
    byId("said").textContent =
      `${lab.name}: ${shown.length} of ${rows.length} students, by ${column}, ${way}.`;
  };

  const draw = () => {
    const lab = data.labs[state.lab];
    if (typeof state.column === "number" && state.column >= lab.tasks.length) state.column = "name";
    const heads = columns(lab).map(([id, name, style]) => {
      const head = make("th", undefined, style);
      head.scope = "col";
      head.dataset.column = id;
      const button = make("button", name);
      button.type = "button";
      button.addEventListener("click", () => {
        state.descending = state.column === id && !state.descending;
        state.column = id;
        order();
      });
      head.append(button);
      return head;
    });
    const line = make("tr");
    line.append(...heads);
    table.tHead.replaceChildren(line);
    rows = lab.rows.map((packed, place) => read(packed, place, lab.tasks));
    for (const row of rows) row.line = drawRow(row, lab.tasks);
    order();
  };

  const choose = (select, options, then) => {
    select.append(...options.map(([value, name]) => new Option(name, value)));
    select.addEventListener("change", () => then(select.value));
  };

  if (!data.labs.length) return;
  const sections = [...new Set(data.people.map((person) => person[2]).filter(Boolean))];
  sections.sort(collator.compare);
  const last = data.labs.findLastIndex((lab) => lab.rows.some(Boolean));
  state.lab = Math.max(last, 0);
  choose(byId("lab"), data.labs.map((lab, at) => [at, lab.name]), (value) => {
    state.lab = Number(value);
    draw();
  });
  byId("lab").value = state.lab;
  choose(byId("section"), [["", "all"], ...sections.map((name) => [name, name])], (value) => {
    state.section = value;
    order();
  });
  byId("choices").addEventListener("submit", (event) => event.preventDefault());
  draw();
  byId("cells").hidden = false;
})();
