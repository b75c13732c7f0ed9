// The overview: what happened, what separates won from lost, what changed, and all sessions.

const MORE_BOXES = 1200, MORE_ROWS = 25;
const LEVELS = ["neg3", "neg2", "neg1", "zero", "pos1", "pos2", "pos3"];

const sessionLink = (name, step = null) =>
  `#session/${encodeURIComponent(name)}${step === null ? "" : `/${step}`}`;

function end(row) {
  if (row.won === null) return el("span", { class: "end" }, `earned ${number(row.outcome)}`);
  return el("span", { class: `end ${row.won ? "won" : "lost"}` }, row.won ? "won" : "lost");
}

// What happened.

// Heads of narrow columns: names, or their numbers where these are long.
const numbered = (names) => names.length > 1 && (names.length > 6 || names.some((name) => name.length > 14));
const nameOf = (names, place) => (numbered(names) ? String(place + 1) : names[place]);

function versionTable() {
  const { versions } = answers.happened, names = versions.map(({ name }) => name);
  const most = Math.max(...versions.map(({ attempts }) => attempts), 1);
  const passed = (kind, each, k) => {
    const found = each[kind].find((one) => one.k === k);
    return found ? amount(found.value) : "–";
  };
  const often = most > 1 && !graded && versions.length > 1 && versions.every(({ attempts }) => attempts === most);
  const has = (name) => versions.some((each) => each[name] !== null && each[name] !== undefined && each[name] > 0);
  const mean = (name, show) => (each) => (each[name] === null ? "–" : show(each[name] / each.sessions));
  const columns = [
    ["version", (each) => el("div", { title: each.name, class: "clipped" }, numbered(names) ? el("b", {}, `${versions.indexOf(each) + 1} `) : null, el("span", { class: "name" }, each.name)), "wide-name"],
    [reached, (each) => [bar(scaled(each.share), scaled(each.low), scaled(each.high)), el("b", {}, amount(each.share)),
      el("span", { class: "soft" }, ` ${amount(each.low).replace(" %", "")} to ${amount(each.high)}`)], "nowrap"],
    ["attempts", (each) => whole(each.sessions), "number"],
    often ? [`pass@${most}`, (each) => passed("pass_at", each, most), "number"] : null,
    often ? [`pass^${most}`, (each) => passed("pass_hat", each, most), "number"] : null,
    ["steps", mean("steps", (value) => number(+value.toPrecision(2))), "number"],
    has("errors") ? ["errors", mean("errors", (value) => number(+value.toPrecision(2))), "number"] : null,
    has("tokens") ? ["tokens", mean("tokens", (value) => whole(Math.round(value))), "number"] : null,
    has("seconds") ? ["time", mean("seconds", duration), "number"] : null,
  ].filter(Boolean);
  const made = [listing("Versions", columns, versions), el("p", { class: "hint" }, `The line in a bar is the 95 % interval. Means of an attempt: ${columns.slice(often ? 5 : 3).map(([head]) => head).join(", ")}.`)];
  if (most > 1 && !graded) {
    const ks = [...new Set(versions.flatMap(({ pass_at: each }) => each.map(({ k }) => k)))].sort((a, b) => a - b);
    const rows = versions.flatMap((each, at) => ["pass_at", "pass_hat"].map((kind) => ({ each, at, kind })));
    made.push(el("details", { open: versions.length === 1 }, el("summary", {}, "pass@k and pass^k for every k"),
      el("p", { class: "hint" }, "pass@k: at least one of k attempts at a task wins; pass^k: all k of them do. Means over the tasks with that many attempts."),
      listing("pass@k and pass^k", [
        ["mean", ({ each, at, kind }) => [kind === "pass_at" ? "pass@k" : "pass^k", versions.length > 1 ? el("span", { class: "soft name", title: each.name }, ` ${nameOf(names, at)}`) : null], "nowrap"],
        ...ks.map((k) => [`k = ${k}`, ({ each, kind }) => {
          const one = each[kind].find((found) => found.k === k);
          return one ? [amount(one.value), one.tasks < each.tasks ? el("span", { class: "soft" }, ` of ${whole(one.tasks)}`) : null] : "–";
        }, "number"])], rows)));
  }
  return made;
}

function level(share) {
  return share <= 0 ? "neg3" : share >= 1 ? "pos3" : share < 0.34 ? "neg2" : share < 0.5 ? "neg1" : share === 0.5 ? "zero" : share < 0.67 ? "pos1" : "pos2";
}

// Names often differ at their ends.
const middle = (name, most) => (name.length <= most ? name : `${name.slice(0, Math.ceil(most / 2) - 1)}…${name.slice(name.length - Math.floor(most / 2))}`);

// The grid: tasks by versions; rows are made as far as they are shown.
function showGrid() {
  const { grid } = answers.happened, { versions: names, tasks } = grid;
  const filter = el("input", { type: "search", "aria-label": "Filter tasks by name", placeholder: "filter tasks", autocomplete: "off" });
  const field = el("div", { class: "scroll field", tabindex: "-1", role: "group", "aria-label": "Tasks by versions" });
  const more = button("", () => { most *= 5; show(); });
  let most = Math.max(30, Math.floor(MORE_BOXES / names.length)), chosen = null;
  const pick = (task, version, box) => {
    if (chosen) chosen.classList.remove("chosen");
    chosen = box;
    box.classList.add("chosen");
    showCell(task, version);
  };
  const cell = (task, share, words, version) => {
    const named = version === null ? "" : `, ${names[version]}`;
    const made = button(words, () => pick(task, version === null ? null : names[version], made), {
      class: `box ${level(scaled(share))}`, tabindex: "-1", "data-tip": `${task}${named}`, "aria-label": `Task ${task}${named}: ${reached} ${words}` });
    return made;
  };
  const head = (most_) => el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "task"),
    names.map((name, place) => el("th", { scope: "col", class: "top", title: name, "aria-label": name }, el("span", { class: "name" }, most_ ? reached : nameOf(names, place))))));
  const line = (letters) => ({ task, cells }) => el("tr", {},
    el("th", { scope: "row" }, button(middle(task, letters), (event) => pick(task, null, event.currentTarget), { class: "task name", title: task, tabindex: "-1" })),
    cells.map((pair, version) => el("td", {}, pair ? cell(task, pair[0] / pair[1], graded ? number(+(pair[0] / pair[1]).toPrecision(2)) : `${pair[0]}/${pair[1]}`, version) : el("span", { class: "soft", "aria-label": "no attempt" }, "·"))));
  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    const fitting = tasks.filter(({ task }) => task.toLowerCase().includes(wanted)), shown = fitting.slice(0, most);
    // Few versions leave room for several columns of tasks side by side.
    const box = names.length > 12 ? 30 : 44, room = (field.clientWidth - 40 - box * names.length) / 8;
    const letters = Math.min(Math.max(...shown.map(({ task }) => task.length), 4), Math.max(14, Math.min(56, Math.floor(room))));
    const side = Math.min(Math.ceil(shown.length / 8), Math.max(1, Math.floor(field.clientWidth / (40 + 8 * letters + box * names.length))));
    field.replaceChildren(el("div", { class: "tables" }, Array.from({ length: side }, (_, place) =>
      el("table", { class: `grid ${names.length > 12 ? "narrow" : ""}` }, head(names.length === 1), el("tbody", {}, shown.filter((_, at) => at % side === place).map(line(letters)))))));
    const first = field.querySelector(".box");
    if (first) first.tabIndex = 0;
    more.hidden = fitting.length <= most;
    more.textContent = `Show ${whole(Math.min(fitting.length, 5 * most) - most)} more of ${several(fitting.length, "task")}`;
    count.textContent = wanted ? several(fitting.length, "task") : "";
  };
  const count = el("span", { class: "soft", role: "status" });
  filter.addEventListener("input", show);
  roving(field, "button", () => names.length + 1);
  field.addEventListener("mousemove", (event) => {
    const box = event.target.closest(".box");
    showTip(event, box ? [box.dataset.tip, `${reached} ${box.textContent}`] : null);
  });
  field.addEventListener("mouseleave", (event) => showTip(event, null));
  const split = tasks.filter(({ spread }) => spread > 0).slice(0, 3);
  const blocks = grid.blocks.map(({ name, tasks: size }) => `${whole(size)} ${name}`).join(", ");
  put("grid", el("div", { class: "controls above" }, el("h3", {}, `${several(tasks.length, "task")}: ${blocks}`), count, tasks.length > 12 ? filter : null),
    field, more, el("p", { class: "hint" }, graded ? "Each box: mean of what the attempts earned. " : "Each box: attempts won of attempts made. ",
      "Select one to list its sessions. ", el("span", { title: grid.order }, "Disagreement and hard tasks first"),
      split.length ? [": look at ", split.map(({ task }, at) => [at ? ", " : "", button(middle(task, 30), () => showCell(task, null), { class: "link name", title: task })])] : null, ".",
      numbered(names) ? " The numbers over the boxes are those of the versions." : ""));
  show();
}

async function showCell(task, version) {
  const rows = (await allSessions()).filter((row) => row.task === task && (version === null || row.version === version || row.version === null));
  const close = button("Close", () => { put("cell"); });
  put("cell", el("div", { class: "panel" }, el("div", { class: "controls" }, el("h3", { class: "name" }, `Task ${task}${version ? `, ${version}` : ""}`), close),
    sessionTable(rows, version === null ? ["task"] : ["task", "version"])));
  id("cell").scrollIntoView({ block: "nearest" });
}

function balance() {
  const { balance: seen, totals } = answers.happened, { tools } = data.browser;
  const sum = [`${several(totals.steps, "step")}`, totals.tokens === null ? null : `${whole(totals.tokens)} tokens`,
    several(totals.errors, "error"), totals.seconds === null ? null : duration(totals.seconds)].filter(Boolean).join(", ");
  const wrong = tools.filter(({ errors }) => errors);
  const worst = wrong.slice(0, 2).map(({ tool, calls, errors }) => [el("code", { class: "name" }, tool), ` ${whole(errors)} of ${several(calls, "call")}`]);
  const table = tools.length ? el("details", {}, el("summary", {}, "All tools"),
    listing("Tools", [["tool", ({ tool }) => el("code", { class: "name" }, tool)], ["calls", ({ calls }) => whole(calls), "number"],
      ["went wrong", ({ errors }) => whole(errors), "number"], ["share", ({ calls, errors }) => percent(errors / calls), "number"],
      ["sessions that called it", ({ sessions: own }) => whole(own), "number"]], tools)) : null;
  return [
    el("p", {}, el("b", {}, "In all: "), sum, ".", wrong.length ? [" Calls that went wrong most often: ", worst.map((each, place) => [place ? "; " : "", each]), "."] : null),
    el("div", { class: "folds" }, table,
      el("details", {}, el("summary", {}, "What was read, and what was left out"),
        seen.map(({ sentence }) => el("p", {}, sentence)), data.notes.map((note) => el("p", {}, note)))),
  ];
}

// What separates won from lost.

const MEANING = {
  turn: "A turn: sessions did this before it was clear how they would end, so it may be what decides.",
  sign: "A sign: it may follow from how the session went, rather than decide it.",
  fork: "A fork: attempts at the same task stood in the same situation and went on differently.",
};

function finding(row) {
  const side = (which, name) => el("div", { class: "side" },
    bar(scaled(which.share), null, null, which.share < (which === row.with ? row.without : row.with).share ? "worse" : ""),
    el("b", {}, amount(which.share)), el("span", {}, ` ${reached}, ${name} `, prose(which.what), ` (${several(which.sessions, "session")})`));
  const points = (value) => `${signed(graded ? +value.toPrecision(3) : percents(value))}${graded ? "" : " points"}`;
  const range = Math.max(graded ? 0 : 1, ...[row.low, row.high, row.difference].map((each) => Math.abs(each || 0)));
  const line = row.low === null ? null : el("span", { class: "interval", "aria-hidden": "true" }, el("span", { class: "zero" }), (() => {
    const at = (value) => 50 + 50 * Math.max(-1, Math.min(1, value / range));
    const made = el("span", { class: "reach" }), dot = el("span", { class: "dot" });
    made.style.left = `${at(row.low)}%`;
    made.style.width = `${at(row.high) - at(row.low)}%`;
    dot.style.left = `${at(row.difference)}%`;
    return [made, dot];
  })());
  const where = row.tasks.map((task) => button(oneLine(task, 40), () => { showCell(task, null); location.hash = "#happened"; id("cell").scrollIntoView(); }, { class: "link name", title: task }));
  const [one, two] = row.pair;
  return el("li", { class: `finding ${row.certain ? "certain" : "unsure"}` },
    el("p", { class: "says" }, el("span", { class: `tag ${row.certain && !row.turned ? "sure" : ""}` }, row.certain ? (row.turned ? "at the same task" : "certain") : "hint"), " ", prose(row.sentence)),
    el("div", { class: "sides" }, side(row.with, "with"), side(row.without, row.kind === "event" ? "" : "with")),
    el("p", {}, line, el("span", {}, prose(row.sure)), " ",
      el("span", { class: "soft" }, MEANING[row.turn].replace(/^A sign:/, row.sign ? `Perhaps ${row.sign}:` : "A sign:"))),
    el("div", { class: "controls" },
      one ? el("a", { class: "act", href: pairLink(one, two) }, "Read two sessions where they part") : null,
      where.length ? el("details", {}, el("summary", {}, `Shows in ${whole(row.tasks.length)}${row.tasks.length === 20 ? " or more" : ""} of ${several(row.of_tasks, "task")} that can show it`), where) : null));
}

const pairLink = ([one, step], [two, other]) => `#pair/${[one, step, two, other].map(encodeURIComponent).join("/")}`;

function showFindings() {
  const { sentence, advice, notes, needed, rows } = answers.separates;
  put("verdict", prose([sentence, needed, advice].filter(Boolean).join(" ")));
  const certain = rows.filter((row) => row.certain && !row.turned), hints = rows.filter((row) => !row.certain);
  const first = certain.length ? certain.slice(0, 5) : hints.slice(0, 3), rest = rows.filter((row) => !first.includes(row));
  const list = el("ul", { class: "separating" }, first.map(finding));
  const more = rest.length ? button(`Show ${several(rest.length, rest.every((row) => !row.certain) ? "hint" : "difference")} more`, () => {
    list.append(...rest.map(finding));
    list.children[first.length].querySelector("a, button, summary").focus();
    more.remove();
  }) : null;
  put("findings", rows.length ? list : [], more,
    notes.length || rows.length ? el("details", {}, el("summary", {}, "How this was compared"),
      el("p", {}, "Attempts are compared only with attempts at the same task; those of different versions after what each version earns on average is subtracted. Certain: of all that is called so, at most one in ten is expected to be chance. A line is the 90 % interval of the difference; where it crosses the middle, there may be none."),
      notes.map((note) => el("p", {}, prose(note)))) : null);
}

// What changed from the old version to the new one.
function showChanges() {
  const { changed } = answers;
  if (!changed) return;
  id("changed").hidden = false;
  id("nav").prepend(el("a", { href: "#changed" }, "What changed"));
  const { old, new: fresh, sentence, verdict, failed, whole: all, lost, gained, same, missing } = changed;
  const pair = ([won, of]) => (graded ? number(won / of) : `${number(won)}/${whole(of)}`);
  const why = ({ finding: at }) => (at === null || at === undefined ? "–" : prose(answers.separates.rows[at].sentence));
  const table = (name, rows) => (rows.length ? listing(name, [
    ["task", ({ task }) => button(task, () => { showCell(task, null); id("cell").scrollIntoView(); }, { class: "link name" })],
    ["old", (row) => pair(row.old), "number"], ["new", (row) => pair(row.new), "number"],
    rows.some((row) => row.finding !== null) ? ["what explains it", why] : null].filter(Boolean), rows) : null);
  const row = (name, own) => el("div", { class: "side" }, bar(scaled(own.share)), el("b", {}, amount(own.share)), ` ${reached}, `, el("span", { class: "name" }, name), ` (${several(own.sessions, "session")})`);
  const absent = Object.entries(missing || {});
  put("changes", el("p", { class: "lead" }, prose(sentence)), el("div", { class: "sides" }, row(old, all.old), row(fresh, all.new)),
    el("p", {}, "The verdict that --fail-if uses: ", el("b", { class: failed ? "bad" : "good" }, prose(verdict))),
    el("h3", {}, `Worse: ${several(lost.length, "task")}`), table("Tasks that were won and are lost", lost),
    el("details", { open: !lost.length && gained.length < 6 }, el("summary", {}, `Better: ${several(gained.length, "task")}; no change: ${whole(same)}`), table("Tasks that were lost and are won", gained)),
    absent.length ? el("details", {}, el("summary", {}, `Not compared: ${several(absent.length, "task")}`),
      el("ul", {}, absent.map(([task, reason]) => el("li", {}, el("span", { class: "name" }, task), `: ${reason}`)))) : null);
}

// All sessions.

const creditText = (value) => signed(+value.toFixed(Math.abs(value) < 0.01 ? 3 : 2));
// The name of a session often begins with that of its task.
const ownName = (session, task) => (session.startsWith(`${task}/`) ? session.slice(task.length + 1) : session);

function sessionTable(rows, without = [], heads = null, hits = null) {
  const has = (name) => rows.some((row) => row[name] !== null && row[name] !== undefined);
  const reason = ({ session, costliest, no_credit: none }) => {
    if (!costliest) return el("span", { class: "soft" }, none || "–");
    const step = el("a", { href: sessionLink(session, costliest.step) }, `step ${costliest.step}`);
    if (costliest.credit >= 0) return el("span", { class: "soft" }, "none harmed; the least helpful is ", step);
    return [step, ` (${creditText(costliest.credit)}): `, prose(costliest.why)];
  };
  const columns = [
    ["session", ({ session, task }) => el("a", { class: "name", href: sessionLink(session), title: session }, middle(ownName(session, task), 46))],
    ["task", ({ task }) => el("span", { class: "name", title: task }, middle(oneLine(task, 400), 34)), "short"],
    ["version", ({ version }) => el("span", { class: "name", title: version }, version === null ? "" : middle(version, 28)), "short"],
    ["outcome", end, "short"],
    ["steps", ({ steps }) => whole(steps), "number"],
    ["tokens", ({ tokens }) => number(tokens), "number"],
    ["errors", ({ errors }) => whole(errors), "number"],
    ["time", ({ seconds }) => duration(seconds), "number"],
    hits ? ["found", ({ session }) => { const hit = hits.get(numberOf.get(session)); return [el("a", { href: sessionLink(session, hit.step) }, `step ${hit.step}`), ` ${several(hit.steps, "step")}: `, el("span", { class: "name" }, hit.piece)]; }] : ["costliest step", reason, "reason"],
  ].filter(([head]) => !without.includes(head) && !(head === "version" && !has("version")) && !(head === "tokens" && !has("tokens")) && !(head === "time" && !has("seconds")));
  return listing("Sessions", columns, rows, heads ? columns.map(([head]) => heads(head)) : undefined);
}

const KEYS = { time: "seconds", "costliest step": ({ costliest }) => (costliest ? costliest.credit : 1e9) };

async function startSessions() {
  const rows = await allSessions(), { sessions: shown, of_sessions: of } = data.browser;
  put("sessions-note", "Open one to read it with the credit of each step: what it did for the outcome, judged by what other attempts at the task did.",
    shown < of ? ` To keep the page small, ${whole(shown)} of ${whole(of)} sessions can be opened; of each task the lost ones are kept first.` : "");
  const distinct = (values) => [...new Set(values)].filter((value) => value !== null).sort(compare);
  const choices = (name, values) => {
    if (values.length < 2) id(name).closest("label").hidden = true;
    id(name).append(...values.map((value) => el("option", { value }, oneLine(value, 60))));
  };
  choices("outcome", graded ? [] : distinct(rows.map(({ won }) => (won ? "won" : "lost"))));
  choices("version", distinct(rows.map(({ version }) => version)));
  let by = null, down = false, most = MORE_ROWS, hits = null;
  const heads = (head) => (["found"].includes(head) ? head : button([head, by === head ? (down ? " ↓" : " ↑") : ""], () => {
    down = by === head ? !down : ["steps", "tokens", "errors", "time"].includes(head);
    by = head;
    show();
    const again = [...id("session-list").querySelectorAll(".sort")].find((each) => each.textContent.startsWith(head));
    if (again) again.focus();
  }, { class: "sort" }));
  const show = () => {
    const wanted = id("name").value.trim().toLowerCase(), outcome = id("outcome").value, version = id("version").value;
    let fitting = rows.filter((row, at) => (!hits || hits.has(at)) && (!version || row.version === version) &&
      (!outcome || (row.won ? "won" : "lost") === outcome) &&
      (!wanted || [row.session, row.task, row.version || ""].some((text) => text.toLowerCase().includes(wanted))));
    const key = KEYS[by] || by, own = typeof key === "function" ? key : (row) => row[key];
    if (by) {
      fitting = [...fitting].sort((a, b) => (down ? -1 : 1) *
        (typeof own(a) === "string" ? compare(own(a), own(b)) : (own(a) ?? -1) - (own(b) ?? -1)));
    }
    const made = sessionTable(fitting.slice(0, most), [], heads, hits);
    if (by) made.querySelectorAll("th").forEach((head) => { if (head.textContent.startsWith(by)) head.setAttribute("aria-sort", down ? "descending" : "ascending"); });
    if (hits || wanted || outcome || version) put("found", `${several(fitting.length, "session")} of ${whole(rows.length)}`); else put("found");
    put("session-list", made, fitting.length > most ? button(`Show more of ${whole(fitting.length)}`, () => { most *= 4; show(); }) : null);
  };
  const search = async () => {
    const asked = id("search").value.trim();
    if (asked) {
      try { hits = await searched(asked, (share) => put("found", `Searching: ${percents(share)} %`)); }
      catch (error) { put("found", error.message); return; }
    } else hits = null;
    show();
  };
  for (const name of ["name", "outcome", "version"]) id(name).addEventListener("input", show);
  id("find").addEventListener("click", search);
  id("search").addEventListener("keydown", (event) => { if (event.key === "Enter") search(); });
  id("search").addEventListener("input", () => { if (!id("search").value && hits) search(); });
  // j and k move from one session to the next.
  id("session-list").addEventListener("keydown", (event) => {
    const links = [...id("session-list").querySelectorAll("tr td:first-child a")], line = event.target.closest("tr");
    const at = links.findIndex((link) => link.closest("tr") === line), to = { j: at + 1, k: at - 1 }[event.key];
    if (to !== undefined && links[to]) links[to].focus();
  });
  show();
}
