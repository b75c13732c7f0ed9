// One session as people know it: messages and calls, with the credit of each step beside it.

const FOLD_LINES = 6, FOLD_LENGTH = 480, LONG_OPENING = 600, INDENT = 18, MOST_WRONG = 12;
const ROLES = { assistant: "agent", tool: "result", system: "system", user: "user", demonstration: "agent, scripted" };
let recipe = 0;  // the place in data.browser.recipes of the recipe whose credit is shown
let current = null;  // what is read: { run, at, show }, or null

const creditOf = (run, at) => run.credits[recipe].advantage[at];
const credited = (run, at) => data.browser.reasons[run.credits[recipe].reason[at]] === "credited";
const wayOf = (size) => Math.min(1, Math.abs(size) / data.browser.recipes[recipe].scale);

function shade(run, at) {
  if (!credited(run, at)) return "none";
  const value = creditOf(run, at), size = wayOf(value);
  return size < 0.02 ? "zero" : LEVELS[3 + Math.sign(value) * (size < 0.34 ? 1 : size < 0.75 ? 2 : 3)];
}

function brief(run, at) {
  if (!credited(run, at)) return "–";
  const value = creditOf(run, at), size = Math.abs(value);
  const text = size >= 9.95 ? size.toFixed(0) : size >= 0.995 ? size.toFixed(1) : size.toFixed(2);
  return (value > 0 ? "+" : value < 0 ? "−" : "") + (size < 0.005 ? "0" : text.replace(/^0\./, "."));
}

const chip = (run, at) => el("span", { class: `chip ${shade(run, at)}` }, `credit ${brief(run, at)}`);

// A text that is folded beyond a few lines.
function folding(words, few, name) {
  const lines = words.split("\n"), long = lines.length > FOLD_LINES || words.length > FOLD_LENGTH;
  const made = el("pre", { tabindex: long && !few ? "0" : null }, words);
  if (!few || !long) return made;
  made.classList.add("clip");
  const size = `${whole(words.length)} characters${lines.length > 1 ? `, ${whole(lines.length)} lines` : ""}`;
  const toggle = button(`Show all: ${size}`, () => {
    const closed = made.classList.toggle("clip");
    toggle.textContent = closed ? `Show all: ${size}` : "Show less";
    toggle.setAttribute("aria-expanded", String(!closed));
  }, { class: "link", "aria-expanded": "false", "aria-label": `Show all of ${name}: ${size}` });
  return [made, toggle];
}

// A call as name(key=value, ...): on one line if it is short, else an argument on each.
function callOf(run, [, name, ...words]) {
  const pairs = [];
  for (let at = 0; at + 1 < words.length; at += 2) pairs.push([textOf(run, words[at]) ?? "", textOf(run, words[at + 1]) ?? '""']);
  const short = pairs.reduce((sum, [key, value]) => sum + key.length + value.length + 3, 0) < 90 && !pairs.some(([, value]) => value.includes("\n"));
  const inside = pairs.flatMap(([key, value], at) => [short ? (at ? ", " : "") : "\n  ", el("span", { class: "argument" }, key), "=",
    value.includes("\n") ? `\n${value.replace(/^/gm, "    ")}` : value, !short && at + 1 < pairs.length ? "," : ""]);
  return el("pre", { class: "call" }, el("b", {}, textOf(run, name) ?? ""), "(", inside, short ? ")" : "\n)");
}

function message(run, one, at, names) {
  const { role, text, thought, calls = [], answers: answered } = one;
  const words = textOf(run, text), who = ROLES[role] || role;
  const tool = answered === undefined ? null : names.get(answered);
  const opening = at === run.start && role !== "assistant" && words !== null && words.length > LONG_OPENING;
  const body = [];
  if (thought >= 0) body.push(el("details", {}, el("summary", {}, `Reasoning, ${whole(textOf(run, thought).length)} characters`), el("pre", {}, textOf(run, thought))));
  if (words !== null) {
    body.push(opening
      ? el("details", {}, el("summary", {}, `${role === "system" ? "The system prompt" : "The opening"}, ${whole(words.length)} characters: ${oneLine(words, 70)}`), el("pre", {}, words))
      : folding(words, role === "tool", tool ? `the result of ${tool}` : "the result"));
  }
  body.push(...calls.map((call) => callOf(run, call)));
  if (!body.length) body.push(el("p", { class: "soft" }, "(nothing)"));
  const kind = ["assistant", "tool", "system", "user"].includes(role) ? role : "other";
  return el("div", { class: `message ${kind}` }, el("p", { class: "role" }, el("span", { class: "name" }, who), tool ? [" of ", el("code", { class: "name" }, tool)] : null), body);
}

// The messages of a step, or its state and action where the log has none.
function content(run, at) {
  const { cells } = run, own = cells.messages && cells.messages[at];
  if (own && own.length) {
    const names = run.calls || (run.calls = new Map(stepsOf(run).flatMap((each) => cells.messages[each]).flatMap(({ calls = [] }) => calls)
      .filter((call) => call[0] >= 0).map((call) => [call[0], textOf(run, call[1])])));
    return own.map((each) => message(run, each, at, names));
  }
  const text = (title, index) => {
    const words = textOf(run, index);
    return words === null ? null : el("div", { class: "message other" }, el("p", { class: "role" }, title), folding(words, title !== "action", `the ${title}`));
  };
  const asked = cells.prompt && cells.prompt[at] && cells.prompt[at].length ? cells.prompt[at] : null;
  return [
    asked ? el("details", {}, el("summary", {}, `Prompt, ${several(asked.length, "message")}`), asked.map((each) => message(run, each, -1, new Map()))) : null,
    text("state", cells.state[at]),
    cells.observation && cells.observation[at] !== cells.state[at] ? text("observation", cells.observation[at]) : null,
    text("action", cells.action[at]),
    cells.response && cells.response[at] !== cells.action[at] ? text("response", cells.response[at]) : null,
  ];
}

// How one term of the credit came about: its sentence, filled with what the recipe compared.
function sentence(run, name, at) {
  const term = run.credits[recipe].terms[name], value = term.value[at], reason = term.reason[at];
  if (data.browser.reasons[reason] !== "credited") return `no credit: ${data.browser.why[reason]}`;
  const { text: words, beyond } = data.browser.recipes[recipe].sentences[name][term.way[at]];
  const filled = words.replace(/\{(own|baseline|peers|alike)(:\+)?\}/g, (_, field, sign) => {
    const figure = term[field][at];
    if (field === "peers" || field === "alike") return whole(figure);
    return sign ? signed(figure) : number(figure);
  }).replace(/\b1 (other )?(peer|step|row)s\b/g, "1 $1$2").replace(/\b1 (other )?trajectories\b/g, "1 $1trajectory");
  if (beyond) return `${filled}; ${beyond}; so ${signed(value)}`;
  const difference = term.difference[at], spread = value ? difference / value : 1;
  if (Math.abs(spread - 1) < 0.005) return `${filled}; so ${signed(value)}`;
  return `${filled}; so ${signed(difference)}, divided by ${number(spread)}: ${signed(value)}`;
}

function arithmetic(run, at) {
  const { advantage, terms, return: returns } = run.credits[recipe], { recipes } = data.browser;
  const made = el("details", { class: "how" }, el("summary", {}, "How this number came about"));
  made.addEventListener("toggle", () => {
    if (made.children.length > 1) return;
    const sum = Object.entries(terms).map(([name, term]) =>
      (recipes[recipe].weights[name] === 1 ? "" : `${number(recipes[recipe].weights[name])} × `) + `${name} ${signed(term.value[at])}`);
    const other = recipes.map(({ name }, which) => (which === recipe ? null : ` By ${name}: ${signed(run.credits[which].advantage[at])}.`));
    made.append(el("p", {}, `Credit ${signed(advantage[at])} = ${sum.join(" + ")}.`, other),
      ...Object.keys(terms).map((name) => el("p", {}, el("b", {}, `${name}: `), sentence(run, name, at), ".")),
      el("p", {}, `Reward ${number(run.cells.reward[at])}; return from this step on ${number(returns[at])}.`));
  });
  return made;
}

// How deep a step is nested: those of a sub-agent under the step that started it.
function depths(run) {
  const depth = new Map();
  for (const at of stepsOf(run)) {
    const parent = run.cells.parent ? run.cells.parent[at] : -1;
    depth.set(at, parent >= 0 && run.start + parent < at ? depth.get(run.start + parent) + 1 : 0);
  }
  return depth;
}

// Of steps that all helped, none was costly; of steps that all harmed, none was good.
const called = (name, { credit }) => (name === "costliest" ? (credit < 0 ? name : "least helpful") : credit > 0 ? name : "least harmful");

function stepOf(run, at, depth = 0) {
  const { cells } = run, step = cells.step[at], marks = [];
  for (const [name, which] of [["costliest", run.costliest], ["best", run.best]]) {
    if (which && which.step === step) marks.push(el("p", { class: `mark-${name}` }, el("b", {}, `The ${called(name, which)} step: `), prose(which.why), "."));
  }
  const agent = textOf(run, cells.agent ? cells.agent[at] : -1), corrects = textOf(run, cells.corrects ? cells.corrects[at] : -1);
  const made = el("div", { class: "step", role: "group", "data-at": at, "aria-label": `Step ${step}` },
    el("h3", {}, el("a", { href: sessionLink(run.session, step), class: "link" }, `Step ${step}`), " ", chip(run, at),
      cells.failed[at] ? el("span", { class: "tag bad" }, cells.valid[at] ? "went wrong" : "not understood") : null,
      agent && agent !== "" ? el("span", { class: "soft" }, " by ", el("span", { class: "name" }, agent)) : null,
      corrects ? el("span", { class: "soft" }, " corrects ", el("span", { class: "name" }, corrects)) : null),
    marks, content(run, at),
    cells.rewritten && cells.rewritten[at] ? el("p", { class: "rewriting" }, "The context was rewritten here.") : null,
    arithmetic(run, at));
  if (depth) made.style.marginLeft = `${INDENT * depth}px`;
  return made;
}

// The strip: one bar for each step, to the right and blue above 0, to the left and red below.
function strip(run, choose) {
  const made = el("div", { class: "strip", role: "group", "aria-label": "Credit of each step" });
  for (const at of stepsOf(run)) {
    const value = credited(run, at) ? creditOf(run, at) : null, step = run.cells.step[at];
    const special = [["costliest", run.costliest], ["best", run.best]].filter(([, which]) => which && which.step === step).map(([name, which]) => called(name, which));
    const length = el("span", { class: "length" });
    length.style.setProperty("--size", value === null ? 0 : wayOf(value));
    const words = value === null ? "no credit" : `credit ${signed(value)}`;
    made.append(button([el("span", { class: "place" }, step), el("span", { class: `tick ${value === null ? "none" : value > 0 ? "up" : value < 0 ? "down" : "zero"}` }, value === null ? "–" : length),
      el("span", { class: "flag" }, special.includes("costliest") ? "▼" : special.includes("best") ? "▲" : "")], () => choose(at, true), {
      class: "beat", "data-at": at, tabindex: "-1", title: `Step ${step}: ${words}`,
      "aria-label": `Step ${step}: ${words}${special.length ? `, the ${special.join(" and the ")} step` : ""}` }));
  }
  roving(made, ".beat");
  made.addEventListener("focusin", (event) => { const beat = event.target.closest(".beat"); if (beat && Number(beat.dataset.at) !== current.at) choose(Number(beat.dataset.at), true); });
  return made;
}

function facts(run) {
  return [end(run), run.version === null ? null : el("span", { class: "name" }, run.version), several(run.steps, "step"),
    several(run.errors, "error"), run.tokens === null ? null : `${whole(run.tokens)} tokens`,
    run.seconds === null ? null : duration(run.seconds), run.cut ? "cut before its end" : null]
    .filter(Boolean).map((each, at) => [at ? " · " : null, each]);
}

const back = () => button([el("span", { "aria-hidden": "true" }, "← "), "Back ", el("kbd", {}, "Esc")], leave, { id: "back" });

function absent(name) {
  put("reader", el("div", { class: "controls" }, back()), el("p", {}, "This page does not hold the conversation of ", el("b", { class: "name" }, name), "."));
}

// The step of another attempt that is at the same moment: aligned by states and calls, else by number.
function sameMoment(run, at, other) {
  const same = run.group === other.group, key = (one) => (each) => {
    const label = same ? one.credits[0].label[each] : -1;
    return label >= 0 ? label : `:${textOf(one, one.cells.action[each])}`;
  };
  const ours = stepsOf(run), theirs = stepsOf(other), moment = at - run.start;
  if (ours.length * theirs.length < 1e6) {
    const found = aligned(ours.map(key(run)), theirs.map(key(other))).find(([i, j]) => i === moment && j !== null);
    if (found) return theirs[found[1]];
  }
  const act = (one, each) => textOf(one, one.cells.action[each]), mine = act(run, at);
  const alike = theirs.filter((each) => act(other, each) === mine).sort((a, b) => Math.abs(a - other.start - moment) - Math.abs(b - other.start - moment));
  return alike.length ? alike[0] : theirs[Math.min(moment, theirs.length - 1)];
}

// The longest common subsequence of two sequences, as pairs of places; null stands for a gap.
function aligned(left, right) {
  const rows = left.length, columns = right.length;
  const best = Array.from({ length: rows + 1 }, () => new Uint16Array(columns + 1));
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) best[i][j] = left[i] === right[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  }
  const pairs = [];
  let i = 0, j = 0;
  while (i < rows || j < columns) {
    if (i < rows && j < columns && left[i] === right[j]) pairs.push([i++, j++]);
    else if (j >= columns || (i < rows && best[i + 1][j] >= best[i][j + 1])) pairs.push([i++, null]);
    else pairs.push([null, j++]);
  }
  return pairs;
}

function siblings(run, choose) {
  const others = ofTask.get(run.task).filter((each) => each !== run.number);
  if (!others.length) return null;
  const jump = async (each) => {
    const other = await open(each);
    location.hash = sessionLink(sessions[each].session, other ? other.cells.step[sameMoment(run, current.at, other)] : null);
  };
  const compareWith = async (each) => {
    const other = await open(each);
    if (other) location.hash = pairLink([run.session, run.cells.step[current.at]], [other.session, other.cells.step[sameMoment(run, current.at, other)]]);
  };
  return [el("h3", {}, "The same moment in another attempt"), el("ul", { class: "others" }, others.map((each) => el("li", {},
    button([end(sessions[each]), " ", el("span", { class: "name" }, sessions[each].version || sessions[each].session)], () => jump(each), { class: "link", title: sessions[each].session }),
    " ", button("side by side", () => compareWith(each), { class: "link soft", "aria-label": `Side by side with ${sessions[each].session}` }))))];
}

function readSession(run, step) {
  const found = step === null ? undefined : place(run, step);
  const first = found ?? run.start;
  const talk = el("div", { class: "talk" }), depth = depths(run);
  talk.append(...stepsOf(run).map((at) => stepOf(run, at, depth.get(at))));
  const choose = (at, scroll) => {
    current.at = at;
    for (const each of talk.querySelectorAll(".step.current")) each.classList.remove("current");
    const here = talk.querySelector(`.step[data-at="${at}"]`);
    here.classList.add("current");
    for (const beat of beats.querySelectorAll(".beat")) {
      const on = Number(beat.dataset.at) === at;
      beat.classList.toggle("current", on);
      beat.tabIndex = on ? 0 : -1;
      if (on) { beat.setAttribute("aria-current", "step"); beat.scrollIntoView({ block: "nearest", inline: "nearest" }); } else beat.removeAttribute("aria-current");
    }
    if (scroll) here.scrollIntoView({ block: "start" });
    stay(sessionLink(run.session, run.cells.step[at]));
  };
  current = { run, at: first, choose };
  const beats = strip(run, choose);
  const to = (which) => () => choose(place(run, which.step), true);
  const reason = (name, which) => (which ? el("p", { class: `mark-${name}` }, button(`The ${called(name, which)} step: ${which.step}`, to(which), { class: "link" }), ` (${creditText(which.credit)}): `, prose(which.why), ".") : null);
  const { recipes } = data.browser, wrong = stepsOf(run).filter((at) => run.cells.failed[at]);
  const picker = recipes.length > 1 ? el("label", {}, "Credit by ", el("select", { id: "recipe" }, recipes.map(({ name }, at) => el("option", { value: at, selected: at === recipe }, oneLine(name, 60))))) : null;
  if (picker) picker.addEventListener("change", () => { recipe = Number(picker.querySelector("select").value); readSession(run, run.cells.step[current.at]); });
  put("reader", el("div", { class: "controls crumbs" }, back(), el("h2", {}, el("span", { class: "name" }, run.session)), el("p", {}, "task ", el("b", { class: "name" }, run.task), " · ", facts(run)), picker),
    el("div", { class: "reading" }, talk, el("aside", { "aria-label": "Credit" },
      reason("costliest", run.costliest), reason("best", run.best),
      wrong.length ? el("p", {}, "Went wrong: ", wrong.slice(0, MOST_WRONG).map((at, nth) => [nth ? ", " : "", button(`step ${run.cells.step[at]}`, () => choose(at, true), { class: "link" })]), wrong.length > MOST_WRONG ? ` and ${whole(wrong.length - MOST_WRONG)} more.` : ".") : null,
      run.costliest || run.best ? null : el("p", { class: "soft" }, `No step stands out: ${run.no_credit || "all have the same credit"}.`),
      el("h3", {}, "Credit of each step"), beats,
      el("p", { class: "hint" }, "Blue helped, red harmed, a dash is no credit. ", el("kbd", {}, "j"), " ", el("kbd", {}, "k"), " or the arrow keys go from step to step."),
      siblings(run, choose))));
  choose(first, false);
  return () => (first === run.start ? scrollTo(0, 0) : talk.querySelector(`.step[data-at="${first}"]`).scrollIntoView());
}

// Two sessions side by side from two steps on; what was before is folded.
function readPair(runs, steps) {
  const firsts = runs.map((run, at) => place(run, steps[at]) ?? run.start);
  const [left, right] = runs, same = left.group === right.group;
  const key = (run) => (at) => (same && run.credits[0].label[at] >= 0 ? run.credits[0].label[at] : `:${textOf(run, run.cells.action[at])}`);
  const range = (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, at) => from + at);
  // Rows of two steps: in the same state together, those between by themselves.
  const rows = (ours, theirs) => {
    const made = [], waiting = [[], []];
    const flush = () => { while (waiting[0].length || waiting[1].length) made.push([waiting[0].shift() ?? null, waiting[1].shift() ?? null]); };
    for (const [i, j] of aligned(ours.map(key(left)), theirs.map(key(right)))) {
      if (i !== null && j !== null) { flush(); made.push([ours[i], theirs[j]]); } else waiting[i === null ? 1 : 0].push(i === null ? theirs[j] : ours[i]);
    }
    flush();
    return made;
  };
  const half = (run, at) => (at === null ? el("div", { class: "half none" }) : el("div", { class: "half" }, stepOf(run, at)));
  const sheet = (pairs) => pairs.map((pair) => el("div", { class: "row" }, half(left, pair[0]), half(right, pair[1])));
  const before = rows(range(left.start, firsts[0]), range(right.start, firsts[1]));
  const after = rows(range(firsts[0] + 1, left.start + left.length), range(firsts[1] + 1, right.start + right.length));
  const did = ([a, b]) => a !== null && b !== null && textOf(left, left.cells.action[a]) === textOf(right, right.cells.action[b]);
  const earlier = before.length ? el("details", {}, el("summary", {}, `Before: ${several(firsts[0] - left.start, "step")} and ${whole(firsts[1] - right.start)}, ${whole(before.filter(did).length)} the same in both`)) : null;
  if (earlier) earlier.addEventListener("toggle", () => { if (earlier.children.length === 1) earlier.append(...sheet(before)); });
  current = null;
  const head = (run) => el("div", { class: "half" }, el("h3", {}, el("a", { class: "name", href: sessionLink(run.session) }, run.session)), el("p", {}, facts(run)));
  put("reader", el("div", { class: "controls crumbs" }, back(), el("h2", {}, "Two sessions", left.task === right.task ? [" of task ", el("span", { class: "name" }, left.task)] : null)),
    el("div", { class: "pair" }, el("div", { class: "row heads" }, head(left), head(right)), earlier,
      el("p", { class: "parting" }, did(firsts) ? "Both do the same here." : before.every(did) ? "Here they part." : "They differ here, and before."), sheet([firsts, ...after])));
  return () => scrollTo(0, 0);
}

// Which view is shown follows from the address, which survives a reload.
let kept = { scroll: 0, focus: null, hash: "" };

// A page that was opened from a disk may refuse to change its address.
function stay(hash) {
  try { history.replaceState(null, "", hash); } catch { /* the link in the text stays */ }
}

function leave() {
  location.hash = kept.hash || "#happened";
}

function showOverview() {
  current = null;
  id("overview").hidden = false;
  id("reader").hidden = true;
  put("reader");
  const section = document.getElementById(location.hash.slice(1) || "happened");
  if (location.hash === (kept.hash || "#happened") && kept.focus && kept.focus.isConnected) {
    scrollTo(0, kept.scroll);
    kept.focus.focus({ preventScroll: true });
  } else if (section) section.scrollIntoView();
}

async function route() {
  const asked = location.hash, [kind, ...rest] = asked.split("/");
  let names;
  try { names = rest.map(decodeURIComponent); } catch { names = []; }
  if (!answers || !["#session", "#pair"].includes(kind) || !names.length) {
    if (!id("reader").hidden) showOverview();
    kept.hash = location.hash;
    return;
  }
  if (id("reader").hidden) kept = { scroll: scrollY, focus: document.activeElement, hash: kept.hash };
  let settle = () => scrollTo(0, 0);
  try {
    await allSessions();
    const wanted = kind === "#session" ? [names[0]] : [names[0], names[2]];
    const runs = await Promise.all(wanted.map((name) => (numberOf.has(name) ? open(numberOf.get(name)) : null)));
    if (location.hash !== asked) return; // left while it was opened
    const missing = runs.findIndex((run) => run === null);
    const step = (text) => (/^\d+$/.test(text ?? "") ? Number(text) : null);
    id("overview").hidden = true;
    id("reader").hidden = false;
    if (missing >= 0) absent(wanted[missing]);
    else if (kind === "#session") settle = readSession(runs[0], step(names[1]));
    else settle = readPair(runs, [step(names[1]), step(names[3])]);
  } catch (error) {
    if (location.hash !== asked) return;
    id("overview").hidden = true;
    id("reader").hidden = false;
    put("reader", el("div", { class: "controls" }, back()), el("p", { class: "bad" }, error.message));
  }
  id("back").focus({ preventScroll: true });
  settle();
}

document.addEventListener("keydown", (event) => {
  if (id("reader").hidden || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "Escape") { event.preventDefault(); leave(); return; }
  if (!current || event.defaultPrevented || event.target.closest("input, select, textarea, pre")) return;
  const by = { j: 1, ArrowRight: 1, k: -1, ArrowLeft: -1 }[event.key];
  const { run, at, choose } = current, next = at + by;
  if (!by || next < run.start || next >= run.start + run.length) return;
  event.preventDefault();
  choose(next, true);
});
