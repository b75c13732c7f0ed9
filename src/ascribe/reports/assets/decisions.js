// The decisions and the trajectories: two tables whose rows open sessions.

const MORE_ROWS = 15;

// A sentence with its actions, which stand between backticks, as code.
const prose = (words) => words.split("`").map((part, place) => (place % 2 ? el("code", { class: "name" }, part) : part));

// What one side did; the one action of a fork may hold backticks itself.
const did = ({ kind }, { action }) => (kind === "fork" && action.startsWith("`") ? el("code", { class: "name" }, action.slice(1, -1)) : prose(action));

// A share in whole percents, halves to even as in the sentences.
function percents(share) {
  const near = Math.round(100 * share);
  return (Math.abs(100 * share % 1) === 0.5 && near % 2 ? near - 1 : near) || 0;
}

// A table whose cells have the heads of their columns at hand, for narrow screens.
function listing(label, columns, rows, heads = columns.map(([head]) => head)) {
  const made = rows.map((row) => el("tr", {}, columns.map(([head, , fill, kind]) =>
    el("td", { "data-head": head, ...(kind ? { class: kind } : {}) }, fill(row)))));
  const head = heads.map((each, place) => el("th", { scope: "col", ...(columns[place][3] ? { class: columns[place][3] } : {}) }, each));
  const body = el("tbody", {}, made);
  return [el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    el("table", { class: "listing" }, el("thead", {}, el("tr", {}, head)), body)), made, body];
}

function decisionTable() {
  const { sentence, advice, notes, binary, rows, of } = trail.decisions;
  put("sentence", prose(sentence));
  put("to-do", prose(advice));
  const said = notes.map((note) => el("p", { class: "hint" }, prose(note)));
  if (!rows.length) { put("decision-table", said); return; }
  const amount = (value) => (value === null ? "?" : binary ? signed(percents(value)) : signed(+value.toPrecision(3)));
  const unit = binary ? " points" : "";
  const side = (row, each) => [did(row, each), el("div", { class: "soft" },
    binary ? `won ${percents(each.mean)} %` : `earned ${number(each.mean)}`)];
  const sure = (row) => {
    if (row.certain) return "certain";
    if (row.p === null) return "too few attempts to tell";
    return `not certain${row.more ? `; about ${whole(row.more)} more attempts${row.tasks > 1 ? " of each task" : ""} would tell` : ""}`;
  };
  const opener = (row) => {
    const places = row.steps.map((names) => find(...names));
    if (!places.length || places.includes(null)) return null;
    const button = el("button", { type: "button", "aria-expanded": "false" }, "Compare");
    button.addEventListener("click", () => {
      const line = button.closest("tr"), open = button.getAttribute("aria-expanded") === "false";
      button.setAttribute("aria-expanded", String(open));
      if (!open) { line.nextSibling.remove(); return; }
      const [[place, left], [, right]] = places;
      line.after(el("tr", { class: "opened" }, el("td", { colspan: "7" }, sideBySide(place, left, right))));
    });
    return button;
  };
  const columns = [
    ["where", null, (row) => [el("div", { class: "name" }, row.task || `${whole(row.tasks)} tasks`),
      el("div", { class: "soft name" }, row.kind === "fork" ? oneLine(row.state, 90) : row.kind), opener(row)]],
    ["better", null, (row) => side(row, row.better)],
    ["worse", null, (row) => side(row, row.worse)],
    ["difference", null, (row) => amount(row.difference) + unit, "number"],
    ["90 % interval", null, (row) => `${amount(row.low)} to ${amount(row.high)}${unit}`, "interval"],
    ["attempts", null, (row) => `${whole(row.better.sessions)} and ${whole(row.worse.sessions)}`, "number"],
    ["how sure", null, sure],
  ];
  const [made, lines] = listing("Decisions", columns, rows);
  lines.forEach((line, place) => { line.hidden = place >= 10 && !rows[place].certain; });
  const hidden = lines.filter((line) => line.hidden);
  const more = el("button", { type: "button" }, `Show ${whole(hidden.length)} that are less certain`);
  more.addEventListener("click", () => { for (const line of hidden) line.hidden = false; more.remove(); });
  put("decision-table", made, hidden.length ? more : [],
    el("p", { class: "hint" }, "Certain: of the decisions called so, at most one in ten is expected to be chance. ",
      "An attempt counts once in each row, and is compared only with attempts at the same task."), said,
    of > rows.length ? el("p", { class: "hint" }, `${whole(of - rows.length)} more are less certain; ascribe decisions prints all of them.`) : []);
}

const sum = (values, { start, length }) => values.slice(start, start + length).reduce((all, value) => all + value, 0);

function trajectoryTable() {
  const runs = trail.groups.flatMap((group) => group.trajectories.map((run) => ({
    group, run, errors: sum(group.cells.failed, run), tokens: group.cells.tokens ? sum(group.cells.tokens, run) : null,
  })));
  const natural = new Intl.Collator("en", { numeric: true }).compare;
  const decided = ({ run }) => {
    if (run.decided < 0) return "–";
    const row = trail.decisions.rows[run.decided >> 1], [name, other] = run.decided % 2 ? ["worse", "better"] : ["better", "worse"];
    const than = / else$| other actions$/.test(row[name].action) ? [" than ", did(row, row[other])] : [];
    return [el("span", { class: `side ${name}` }, `${name}:`), " ", did(row, row[name]), than, row.certain ? "" : el("span", { class: "soft" }, " (not certain)")];
  };
  const columns = [
    ["trajectory", ({ run }) => run.name, ({ group, run }) =>
      el("a", { class: "name", href: linkTo(group, run.start) }, shortName(run.name, group))],
    ["task", ({ group }) => group.name, ({ group }) => el("span", { class: "name" }, group.name)],
    ["outcome", ({ run }) => run.return, ({ run }) => ending(run)],
    ["steps", ({ run }) => run.length, ({ run }) => whole(run.length), "number"],
    ["tokens", ({ tokens }) => tokens, ({ tokens }) => number(tokens), "number"],
    ["errors", ({ errors }) => errors, ({ errors }) => whole(errors), "number"],
    ["what decided it", ({ run }) => run.decided, decided],
  ].filter(([head, key]) => !["tokens", "errors", "what decided it"].includes(head) || runs.some((row) => key(row) > (head === "what decided it" ? -1 : 0)));
  let sorted = runs, by = null, down = false, most = MORE_ROWS;
  const show = () => {
    const heads = columns.map(([head, key]) => {
      const button = el("button", { type: "button", class: "sort" }, head, by === head ? (down ? " ↓" : " ↑") : "");
      button.addEventListener("click", () => {
        down = by === head ? !down : typeof key(runs[0]) === "number" && head !== "what decided it";
        by = head;
        const order = (a, b) => (typeof key(a) === "string" ? natural(key(a), key(b)) : key(a) - key(b));
        sorted = [...runs].sort((a, b) => (down ? -1 : 1) * order(a, b));
        show();
        [...id("trajectory-table").querySelectorAll(".sort")].find((each) => each.textContent.startsWith(head)).focus();
      });
      return button;
    });
    const [made] = listing("Trajectories", columns, sorted.slice(0, most), heads);
    if (by) made.querySelectorAll("th")[columns.findIndex(([head]) => head === by)].setAttribute("aria-sort", down ? "descending" : "ascending");
    const more = el("button", { type: "button" }, `Show more of ${whole(runs.length)}`);
    more.addEventListener("click", () => { most *= 4; show(); });
    put("trajectory-table", made, runs.length > most ? more : []);
  };
  show();
}
