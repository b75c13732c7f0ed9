// The trajectory browser: one group at a time, a lane for each trajectory, a cell for each step.

const NAME = 186, GAP_X = 10, GAP_Y = 18, NEST = 14;
const ZOOMS = [14, 26, 46, 92, 150];  // widths of a cell; from the fourth on it shows the action
const LEVELS = ["neg3", "neg2", "neg1", "zero", "pos1", "pos2", "pos3"];

// Runs of equal values are written once, with their number.
function unpack(value) {
  if (Array.isArray(value) || value === null || typeof value !== "object") return value;
  if (value.runs) {
    const out = [];
    for (let place = 0; place < value.runs.length; place += 2) {
      for (let copy = 0; copy < value.runs[place + 1]; copy += 1) out.push(value.runs[place]);
    }
    return out;
  }
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, unpack(part)]));
}

const trail = data.browser || { groups: [] };
for (const group of trail.groups) {
  group.cells = unpack(group.cells);
  group.credits = group.credits.map(unpack);
}
let recipe = 0;  // the place in trail.recipes of the recipe whose credit is shown
let zoom = null;  // the reader's choice; without one it follows from the longest lane
let shown = null;
let pair = [];  // trajectories of the group that are shown side by side

const id = (name) => document.getElementById(name);
const creditOf = (group) => group.credits[recipe];
const textAt = (index) => (index === undefined || index < 0 ? null : trail.texts[index]);
const oneLine = (words, most) => {
  const line = words.replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
};

// How deep each step of a trajectory is nested: those of a sub-agent under the step that started it.
function nesting(cells, { start, length }) {
  const depth = new Array(length).fill(0);
  for (let step = 0; cells.parent && step < length; step += 1) {
    const parent = cells.parent[start + step];
    if (parent >= 0 && parent < step) depth[step] = depth[parent] + 1;
  }
  return depth;
}

function level(advantage, reason) {
  if (trail.reasons[reason] !== "credited") return "none";
  const size = Math.min(Math.abs(advantage) / trail.recipes[recipe].scale, 1);
  if (size < 0.02) return "zero";
  return LEVELS[3 + Math.sign(advantage) * (size < 0.34 ? 1 : size < 0.75 ? 2 : 3)];
}

function brief(advantage, reason) {
  if (trail.reasons[reason] !== "credited") return "–";
  const size = Math.abs(advantage);
  const text = size >= 9.95 ? size.toFixed(0) : size >= 0.995 ? size.toFixed(1) : size.toFixed(2);
  const sign = advantage > 0 ? "+" : advantage < 0 ? "−" : "";
  return sign + (size < 0.005 ? "0" : text.replace(/^0\./, "."));
}

const rewritten = (cells, at) => Boolean(cells.rewritten && cells.rewritten[at]);

const briefAt = (group, at) => brief(creditOf(group).advantage[at], creditOf(group).reason[at]);

function endOf(run) {
  if (run.won) return "success";
  return run.cut ? "cut" : run.won === false ? "failure" : null;
}

function ending(run) {
  const end = [run.won ? "success" : null, run.cut ? "cut" : run.won === false ? "failure" : null];
  return [`return ${number(run.return)}`, ...end].filter(Boolean).join(", ");
}

function option([group, place]) {
  const runs = group.trajectories;
  const won = runs.filter((run) => run.won).length;
  const outcome = runs.some((run) => run.won !== null) ? `${won} of ${runs.length} succeeded` : `${runs.length} trajector${runs.length === 1 ? "y" : "ies"}`;
  const parts = [group.name, group.family, outcome,
    trail.batches > 1 && !group.name.startsWith(group.batch) ? `iteration ${group.iteration}` : null];
  return el("option", { value: place }, parts.filter(Boolean).join(" · "));
}

// The end of a name tells trajectories apart; the whole of it is a step away.
function shortName(name, group) {
  const prefix = [`${group.name}/`, `${group.batch}: `].find((each) => name.startsWith(each)) || "";
  const own = name.slice(prefix.length);
  return own.length > 20 ? `…${own.slice(-19)}` : own;
}

// The widest cells with which the longest lane fits; never so narrow that numbers disappear
// unless the reader wants it.
function widthOf(lanes) {
  if (zoom !== null) return ZOOMS[zoom];
  const longest = Math.max(...lanes.map((run) => run.length));
  const room = id("lanes").clientWidth - NAME - 40;
  return [...ZOOMS].reverse().find((wide) => longest * (wide + GAP_X) <= room && wide >= 46) || 46;
}

function showGroup(place) {
  const group = trail.groups[place];
  const lanes = group.trajectories.map((run, index) => ({ ...run, index }))
    .sort((a, b) => b.return - a.return || a.length - b.length || a.index - b.index);
  const laneOf = [];
  const wide = widthOf(lanes), high = wide >= 92 ? 42 : 30, gap = wide < 40 ? 4 : GAP_X;
  const field = el("div", { class: "field" });
  const lines = svg("svg", { "aria-hidden": "true" });
  field.append(lines);
  const cells = new Map();
  const credit = creditOf(group);
  let top = 0;
  lanes.forEach((run, lane) => {
    run.depth = nesting(group.cells, run);
    run.top = top;
    const tick = el("input", { type: "checkbox", "aria-label": `Compare ${run.name}` });
    tick.checked = shown !== null && shown.place === place && pair.includes(run.index);
    tick.addEventListener("change", () => choosePair(run.index, tick.checked));
    const name = el("div", { class: "lane-name" }, tick,
      el("span", { class: "name", title: run.name }, shortName(run.name, group)), el("span", { class: "end" }, ending(run)));
    name.style.width = `${NAME}px`;
    const row = el("div", { class: "lane" }, name);
    const tall = high + NEST * Math.max(...run.depth);
    top += tall + GAP_Y;
    row.style.height = `${tall}px`;
    row.style.marginBottom = `${GAP_Y}px`;
    row.style.gap = `${gap}px`;
    for (let at = run.start; at < run.start + run.length; at += 1) {
      laneOf[at] = lane;
      const kind = level(credit.advantage[at], credit.reason[at]);
      const action = wide >= 92 ? textAt(group.cells.action[at]) : null;
      const button = el("button", {
        type: "button", class: `cell ${kind}${rewritten(group.cells, at) ? " rewritten" : ""}`, tabindex: "-1",
        "aria-label": `${run.name}, step ${group.cells.step[at]}: ` +
          (kind === "none" ? "no credit" : `credit ${signed(credit.advantage[at])}`),
      }, wide < 40 ? null : el("span", { class: "credit" }, briefAt(group, at)),
      action ? el("span", { class: "act name" }, oneLine(action, 60)) : null);
      button.style.width = `${wide}px`;
      button.style.height = `${high}px`;
      button.style.marginTop = `${NEST * run.depth[at - run.start]}px`;
      button.dataset.at = at;
      cells.set(at, button);
      row.append(button);
    }
    field.append(row);
  });
  if (shown === null || shown.place !== place) pair = [];
  shown = { group, lanes, laneOf, cells, lines, place, wide, high, gap, tall: top };
  markHits();
  drawLines();
  put("lanes", field);
  put("detail");
  showPair();
  cells.get(lanes[0].start).tabIndex = 0;
  id("lanes").scrollTo(0, 0);
  id("wider").disabled = wide === ZOOMS[ZOOMS.length - 1];
  id("narrower").disabled = wide === ZOOMS[0];
}

// The same group again, in another way, with the same step chosen.
function redraw() {
  const { place, chosen } = shown;
  showGroup(place);
  if (chosen !== undefined) choose(chosen);
}

// Equal states: from each trajectory's first visit to the next trajectory's that was there too.
function drawLines() {
  const { group, lanes, laneOf, lines, wide, high, gap, tall } = shown;
  const longest = Math.max(...lanes.map((run) => run.length));
  lines.setAttribute("width", NAME + longest * (wide + gap) + gap);
  lines.setAttribute("height", tall);
  const visits = new Map();
  lanes.forEach((run) => {
    const seen = new Set();
    for (let at = run.start; at < run.start + run.length; at += 1) {
      const label = creditOf(group).label[at];
      if (label < 0 || seen.has(label)) continue;
      seen.add(label);
      if (!visits.has(label)) visits.set(label, []);
      visits.get(label).push([laneOf[at], at - run.start]);
    }
  });
  const middle = ([lane, step]) =>
    [NAME + gap + step * (wide + gap) + wide / 2 - 14, lanes[lane].top + NEST * lanes[lane].depth[step] + high / 2];
  for (const [label, stops] of visits) {
    if (stops.length < 2) continue;
    let path = "";
    stops.forEach((stop, number_) => {
      const [x, y] = middle(stop);
      if (!number_) { path = `M${x},${y}`; return; }
      const [fromX, fromY] = middle(stops[number_ - 1]);
      const half = (y - fromY) / 2;
      path += `C${fromX},${fromY + half} ${x},${y - half} ${x},${y}`;
    });
    lines.append(svg("path", { class: "join", d: path, "data-label": label }));
  }
}

function mark(label) {
  for (const path of shown.lines.children) {
    path.classList.toggle("on", label >= 0 && path.getAttribute("data-label") === String(label));
  }
  const labels = creditOf(shown.group).label;
  for (const [at, button] of shown.cells) {
    button.classList.toggle("peer", label >= 0 && labels[at] === label);
  }
}

function choose(at) {
  shown.chosen = at;
  for (const [other, button] of shown.cells) {
    button.classList.toggle("chosen", other === at);
    button.tabIndex = other === at ? 0 : -1;
  }
  mark(creditOf(shown.group).label[at]);
  put("detail", ...detail(at).filter(Boolean));
  // A page that was opened from a disk may refuse to change its address.
  try { history.replaceState(null, "", linkTo(shown.group, at)); } catch { /* the link in the text stays */ }
}

// Links: the names of the group and of the trajectory, the step and the recipe.
function linkTo(group, at) {
  const run = group.trajectories.find(({ start, length }) => at >= start && at < start + length);
  const parts = [group.name, run.name, group.cells.step[at], recipe];
  return `#step/${parts.map(encodeURIComponent).join("/")}`;
}

function find(groupName, runName, step) {
  const place = trail.groups.findIndex(({ name }) => name === groupName);
  if (place < 0) return null;
  const { trajectories, cells } = trail.groups[place];
  const run = trajectories.find(({ name }) => name === runName);
  if (!run) return null;
  const at = cells.step.indexOf(step, run.start);
  return at >= 0 && at < run.start + run.length ? [place, at] : null;
}

function follow() {
  const [kind, ...parts] = location.hash.split("/");
  if (kind !== "#step" || parts.length !== 4) return;
  let names;
  try { names = parts.map(decodeURIComponent); } catch { return; }
  const found = find(names[0], names[1], Number(names[2]));
  if (!found) return;
  useRecipe(trail.recipes[Number(names[3])] ? Number(names[3]) : 0);
  goTo(...found);
  id("browser").scrollIntoView();
}

function goTo(place, at) {
  if (![...id("pick").options].some(({ value }) => value === String(place))) clearFilters();
  if (place !== shown.place) showGroup(place);
  id("pick").value = String(place);
  shown.cells.get(at).focus();
}

function stepLink(row) {
  const found = typeof row.step === "number" ? find(row.group, row.trajectory, row.step) : null;
  return found ? linkTo(trail.groups[found[0]], found[1]) : null;
}

function useRecipe(place) {
  if (place === recipe) return;
  recipe = place;
  id("recipe").value = String(place);
  legend();
  filter();
  redraw();
}

function walk(event) {
  const at = Number(event.target.dataset.at);
  if (Number.isNaN(at)) return;
  const lane = shown.laneOf[at], run = shown.lanes[lane], step = at - run.start;
  const next = {
    ArrowLeft: [lane, step - 1], ArrowRight: [lane, step + 1], ArrowUp: [lane - 1, step],
    ArrowDown: [lane + 1, step], Home: [lane, 0], End: [lane, run.length - 1],
  }[event.key];
  if (!next) return;
  event.preventDefault();
  const target = shown.lanes[next[0]];
  if (!target || next[1] < 0) return;
  shown.cells.get(target.start + Math.min(next[1], target.length - 1)).focus();
}

// How one term came about: its sentence, filled with what the recipe compared.
function sentence(name, term, at) {
  const value = term.value[at], reason = term.reason[at];
  if (trail.reasons[reason] !== "credited") return `no credit: ${trail.why[reason]}`;
  const { text: words, beyond } = trail.recipes[recipe].sentences[name][term.way[at]];
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

function total(group, at) {
  const { advantage, terms } = creditOf(group);
  const parts = Object.entries(terms).map(([name, term]) => {
    const weight = trail.recipes[recipe].weights[name];
    return (weight === 1 ? "" : `${number(weight)} × `) + `${name} ${signed(term.value[at])}`;
  });
  return `Advantage ${signed(advantage[at])} = ${parts.join(" + ")}`;
}

// A message, folded if it is long: who wrote it, its tool calls, its text.
function message({ role, text: index, thought, calls }, open) {
  const words = textAt(index) || "";
  const parts = [];
  if (thought >= 0) parts.push(el("details", {}, el("summary", {}, "Reasoning"), el("pre", { tabindex: "0" }, trail.texts[thought])));
  if (words) parts.push(el("pre", { tabindex: "0" }, words));
  for (const [, call] of calls) parts.push(el("p", { class: "call" }, el("code", {}, trail.texts[call])));
  const called = calls.map(([name]) => `calls ${name}`).join(", ");
  const line = [called, oneLine(words, 110)].filter(Boolean).join(" · ");
  const kind = role === "assistant" || role === "tool" ? role : "shown";
  const short = words.length <= 400;
  return el("details", { class: `message ${kind}`, ...(open && short || role === "assistant" ? { open: "" } : {}) },
    el("summary", {}, el("span", { class: "role" }, role), el("span", { class: "name" }, line)), parts);
}

function messagesOf(at) {
  const messages = shown.group.cells.messages && shown.group.cells.messages[at];
  if (!messages || !messages.length) return null;
  const run = shown.lanes[shown.laneOf[at]];
  const whole_ = el("details", {}, el("summary", {}, `The whole conversation, ${whole(run.length)} steps`));
  whole_.addEventListener("toggle", () => {
    if (whole_.children.length > 1) return;
    const { messages: all, step } = shown.group.cells;
    for (let other = run.start; other < run.start + run.length; other += 1) {
      const agent = run.depth[other - run.start] ? agentAt(shown.group.cells, other) : null;
      const part = el("div", {}, el("h4", {}, `Step ${step[other]}, credit ${briefAt(shown.group, other)}`, agent ? [", ", agent] : null),
        all[other].map((each) => message(each, false)),
        rewritten(shown.group.cells, other) ? el("p", { class: "rewriting" }, "The context was rewritten here.") : null);
      part.style.marginLeft = `${2 * NEST * run.depth[other - run.start]}px`;
      whole_.append(part);
    }
  });
  return el("div", { class: "messages" }, el("h4", {}, "Messages of this step"),
    messages.map((each) => message(each, true)), whole_);
}

function promptOf(at) {
  const messages = shown.group.cells.prompt && shown.group.cells.prompt[at];
  if (!messages || !messages.length) return null;
  const count = messages.length > 1 ? `, ${messages.length} messages` : "";
  return el("details", { class: "prompt" }, el("summary", {}, `Prompt${count}`),
    messages.map((each) => message(each, true)));
}

const agentAt = (cells, at) => (cells.agent && cells.agent[at] >= 0 ? el("span", { class: "name" }, trail.texts[cells.agent[at]]) : null);

function text(title, index) {
  const words = textAt(index);
  return words === null ? null : el("div", {}, el("h4", {}, title), el("pre", { tabindex: "0" }, words));
}

function detail(at) {
  const { group, lanes, laneOf } = shown, cells = group.cells, credit = creditOf(group), run = lanes[laneOf[at]];
  const sums = Object.entries(credit.terms).map(([name, term]) =>
    el("p", { class: "sum" }, el("strong", {}, `${name}: `), sentence(name, term, at), "."));
  const others = trail.recipes.length > 1 ? trail.recipes.map(({ name }, place) => {
    const { advantage, reason } = group.credits[place];
    return `${name} ${brief(advantage[at], reason[at])}`;
  }).join(", ") : "";
  const facts = `Reward ${number(cells.reward[at])}; return from this step on ${number(credit.return[at])}` +
    (cells.valid[at] ? "." : "; the environment did not understand the action.") + (others ? ` Credit by ${others}.` : "") +
    (rewritten(cells, at) ? " After this step the context was rewritten." : "");
  const named = (name, word) => (cells[name] && cells[name][at] >= 0
    ? [word, el("span", { class: "name" }, trail.texts[cells[name][at]])] : []);
  const sameText = cells.observation && cells.observation[at] === cells.state[at];
  const conversation = messagesOf(at);
  const texts = el("div", { class: "texts" },
    text("State", cells.state[at]),
    cells.observation && !sameText ? text("Observation", cells.observation[at]) : null,
    text("Action", cells.action[at]),
    cells.response && cells.response[at] !== cells.action[at] ? text("Response", cells.response[at]) : null);
  return [
    el("h3", {}, el("span", { class: "name" }, run.name), `, step ${cells.step[at]}`,
      named("agent", ", by agent "), run.depth[at - run.start] ? ` from step ${cells.parent[at]} on` : null,
      named("corrects", ", which corrects ")),
    el("p", { class: "sum" }, total(group, at) + "."), ...sums,
    el("p", {}, facts, el("a", { class: "permalink", href: linkTo(group, at) }, "Link to this step")),
    conversation,
    conversation ? el("details", {}, el("summary", {}, "State and action"), texts) : texts,
    promptOf(at),
    peersOf(at),
  ];
}

const MOST_PEERS = 40;

function stepButton(at, place = shown.place) {
  const go = el("button", { type: "button" }, `step ${trail.groups[place].cells.step[at]}`);
  go.addEventListener("click", () => goTo(place, at));
  return go;
}

const actionAt = (cells, at) => { const words = textAt(cells.action[at]); return words === null ? "–" : words.slice(0, 120); };

function peersOf(at) {
  const { group, lanes, laneOf } = shown, cells = group.cells, credit = creditOf(group), label = credit.label[at];
  const peers = [...shown.cells.keys()].filter((other) => other !== at && credit.label[other] === label);
  if (label < 0 || !peers.length) return el("p", {}, "No other step shown here is in this state.");
  const columns = [
    ["trajectory", null, (other) => lanes[laneOf[other]].name, "name"], ["step", null, (other) => stepButton(other)],
    ["action", null, (other) => actionAt(cells, other), "name"],
    ["state", null, (other) => (cells.state[other] === cells.state[at] ? "same" : "similar")],
    ["return", null, (other) => number(credit.return[other]), "number"], ["credit", null, (other) => briefAt(group, other), "number"],
  ];
  const more = peers.length > MOST_PEERS ? ` The first ${MOST_PEERS} are listed.` : "";
  const steps = peers.length === 1 ? "1 other step" : `${whole(peers.length)} other steps`;
  return el("div", {},
    el("h4", {}, `${steps} in this state.${more}`),
    listing("Steps in the same state", columns, peers.slice(0, MOST_PEERS))[0]);
}

// Two trajectories side by side, aligned where they were in the same state.
function choosePair(index, on) {
  pair = on ? [...pair, index].slice(-2) : pair.filter((other) => other !== index);
  document.querySelectorAll(".lane-name input").forEach((tick, lane) => { tick.checked = pair.includes(shown.lanes[lane].index); });
  showPair();
}

const MOST_ALIGNED = 600, MOST_AFTER = 10;

// The longest common subsequence of two sequences, as pairs of places; null stands for a gap.
function aligned(left, right) {
  const rows = left.length, columns = right.length;
  const best = Array.from({ length: rows + 1 }, () => new Uint16Array(columns + 1));
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      best[i][j] = left[i] === right[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
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

function showPair() {
  if (pair.length < 2) {
    put("pair", ...(pair.length ? [el("p", { class: "hint" }, "Tick a second trajectory to see both side by side.")] : []));
    return;
  }
  const runs = pair.map((index) => shown.group.trajectories[index]);
  put("pair", sideBySide(shown.place, ...runs.map(({ start }) => start), false));
}

// Two trajectories side by side from two steps on; what was before is folded, unless there is nothing.
function sideBySide(place, first, second, parting = true) {
  const group = trail.groups[place], cells = group.cells, credit = creditOf(group);
  const runs = [first, second].map((at) => group.trajectories.find(({ start, length }) => at >= start && at < start + length));
  const depth = runs.map((run) => nesting(cells, run));
  const key = (at) => (credit.label[at] >= 0 ? credit.label[at] : -2 - cells.state[at]);
  const range = (from, to) => Array.from({ length: Math.max(0, Math.min(to - from, MOST_ALIGNED)) }, (_, n) => from + n);
  // Rows of two steps, and whether these are in the same state; between such states the two go on by themselves.
  const together = (ours, theirs) => {
    const rows = [], waiting = [[], []];
    const flush = () => { while (waiting[0].length || waiting[1].length) rows.push([...waiting.map((steps) => steps.shift() ?? null), false]); };
    for (const [i, j] of aligned(ours.map(key), theirs.map(key))) {
      if (i !== null && j !== null) { flush(); rows.push([ours[i], theirs[j], true]); }
      else waiting[i === null ? 1 : 0].push(i === null ? theirs[j] : ours[i]);
    }
    flush();
    return rows;
  };
  const skip = Number(parting);
  const before = parting ? together(range(runs[0].start, first), range(runs[1].start, second)) : [];
  const after = together(range(first + skip, runs[0].start + runs[0].length), range(second + skip, runs[1].start + runs[1].length));
  const saw = (at) => (textAt(cells.state[at]) === null ? null : el("div", { class: "saw name" }, oneLine(textAt(cells.state[at]), 240)));
  const same = ([a, b, met]) => met && cells.action[a] === cells.action[b];
  const lines = (pairs) => pairs.flatMap(([a, b, met]) => {
    const half = (at, number_) => {
      if (at === null) return el("td");
      const half_ = el("td", {}, met ? null : saw(at), stepButton(at, place), " ",
        el("span", { class: `chip ${level(credit.advantage[at], credit.reason[at])}` }, briefAt(group, at)), " ",
        el("code", { class: "name" }, actionAt(cells, at)),
        rewritten(cells, at) ? el("div", { class: "rewriting" }, "The context was rewritten here.") : null);
      half_.style.paddingLeft = `${8 + NEST * depth[number_][at - runs[number_].start]}px`;
      return half_;
    };
    const shared = met ? saw(a) : null;
    return [shared ? el("tr", { class: "shared" }, el("td", { colspan: "2" }, shared)) : null,
      el("tr", { class: met && !same([a, b, met]) ? "parted" : "" }, half(a, 0), half(b, 1))];
  }).filter(Boolean);
  const ends = runs.map((run) => el("th", { scope: "col" }, el("span", { class: "name" }, run.name), ` (${ending(run)})`));
  const sheet = (pairs, head) => el("table", { class: "pair" }, head ? el("thead", {}, el("tr", {}, ends)) : null, el("tbody", {}, lines(pairs)));
  const folded = (words, pairs) => (pairs.length ? el("details", {}, el("summary", {}, words), sheet(pairs, false)) : null);
  const [left, right] = [first - runs[0].start, second - runs[1].start].map(whole);
  const most = parting ? MOST_AFTER : MOST_ALIGNED;
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Two trajectories side by side" },
    folded(`Steps before: ${left === right ? left : `${left} and ${right}`}, ${whole(before.filter(same).length)} the same in both`, before),
    sheet(parting ? [[first, second, true], ...after.slice(0, most)] : after, true),
    folded("The steps after that", after.slice(most)),
    el("p", { class: "hint" }, "A line over both is a state that both came to; a bar marks where they then acted differently. Coloured numbers are the credit."));
}

// Filters and search: the steps that fit all of them, in every group.
const FILTERS = ["search", "task", "family", "outcome", "iteration", "sign"];
let hits = [], current = -1, lowered = null;

const TEXTS = ["state", "action", "observation", "response"];

function holds(cells, at, found) {
  for (const name of TEXTS) if (cells[name] && found.has(cells[name][at])) return true;
  return Boolean(cells.messages) && cells.messages[at].some(({ text: index, thought, calls }) => found.has(index) ||
    found.has(thought) || calls.some(([, call]) => found.has(call)));
}

const SIGN = { positive: (value) => value > 0, negative: (value) => value < 0, zero: (value) => value === 0 };

function fits(group, at, asked, found) {
  const { advantage, reason } = creditOf(group);
  if (asked.sign) {
    const credited = trail.reasons[reason[at]] === "credited";
    if (asked.sign === "none" ? credited : !credited || !SIGN[asked.sign](advantage[at])) return false;
  }
  return !asked.search || holds(group.cells, at, found);
}

function filter() {
  const asked = Object.fromEntries(FILTERS.map((name) => [name, id(name).value.trim()]));
  asked.search = asked.search.toLowerCase();
  asked.task = asked.task.toLowerCase();
  const active = Object.values(asked).some(Boolean);
  const found = new Set();
  if (asked.search) {
    lowered = lowered || trail.texts.map((one) => one.toLowerCase());
    lowered.forEach((one, index) => { if (one.includes(asked.search)) found.add(index); });
  }
  hits = [];
  current = -1;
  if (active) {
    trail.groups.forEach((group, place) => {
      if (asked.task && !group.name.toLowerCase().includes(asked.task)) return;
      if (asked.family && group.family !== asked.family) return;
      if (asked.iteration && String(group.iteration) !== asked.iteration) return;
      for (const run of group.trajectories) {
        if (asked.outcome && endOf(run) !== asked.outcome) continue;
        for (let at = run.start; at < run.start + run.length; at += 1) if (fits(group, at, asked, found)) hits.push([place, at]);
      }
    });
  }
  const places = new Set(hits.map(([place]) => place));
  listGroups(active && places.size ? places : null);
  const several = (count, thing) => `${whole(count)} ${thing}${count === 1 ? "" : "s"}`;
  put("found", active ? `${several(hits.length, "step")} in ${several(places.size, "group")}` : "");
  id("next-hit").disabled = !hits.length;
  id("clear").disabled = !active;
  if (shown) {
    if (places.size && !places.has(shown.place)) showGroup(Math.min(...places));
    id("pick").value = String(shown.place);
    shown.active = active;
    markHits();
  }
}

function listGroups(places) {
  const listed = trail.groups.map((group, place) => [group, place]).filter(([, place]) => !places || places.has(place));
  put("pick", listed.map(option));
}

function clearFilters() {
  for (const name of FILTERS) id(name).value = "";
  filter();
}

function markHits() {
  const here = new Set(hits.filter(([place]) => place === shown.place).map(([, at]) => at));
  for (const [at, button] of shown.cells) {
    button.classList.toggle("hit", here.has(at));
    button.classList.toggle("missed", hits.length > 0 && !here.has(at));
  }
}

function nextHit() {
  if (!hits.length) return;
  current = (current + 1) % hits.length;
  goTo(...hits[current]);
  put("found", `${whole(current + 1)} of ${whole(hits.length)} steps`);
}

// What a cell is, next to the pointer.
function cellTip(at) {
  const { group, lanes, laneOf } = shown, { cells } = group;
  const reason = creditOf(group).reason[at];
  const action = textAt(cells.action[at]);
  return [
    `${oneLine(lanes[laneOf[at]].name, 60)}, step ${cells.step[at]}`,
    trail.reasons[reason] === "credited" ? `Credit ${signed(creditOf(group).advantage[at])}` : `No credit: ${trail.why[reason]}`,
    action === null ? null : `Action: ${oneLine(action, 160)}`,
    rewritten(cells, at) ? "After it the context was rewritten" : null,
  ].filter(Boolean);
}

function legend() {
  const bounds = [-0.875, -0.545, -0.18, 0, 0.18, 0.545, 0.875];
  put("legend", bounds.map((share, place) =>
    el("li", { class: LEVELS[place] }, signed(+(share * trail.recipes[recipe].scale).toPrecision(2)))),
    el("li", { class: "none" }, "– no credit"),
    trail.groups.some(({ cells }) => cells.parent) ? el("li", {}, "lower: a sub-agent, or a branch") : [],
    trail.groups.some(({ cells }) => cells.rewritten) ? el("li", { class: "rewritten" }, "context rewritten") : []);
}

function choices(name, values) {
  const filled = values.length > 1;
  id(name).closest("label").hidden = !filled;
  if (filled) id(name).append(...values.map((value) => el("option", { value }, value)));
}

function startBrowser() {
  const notes = [];
  if (trail.steps < trail.of_steps) {
    notes.push(`Shown are ${whole(trail.steps)} of ${whole(trail.of_steps)} steps, in ${whole(trail.groups.length)} ` +
      `of ${whole(trail.of_groups)} groups, evenly spaced. All other numbers on this page cover all steps.`);
  }
  if (trail.texts.some((one) => one.endsWith(" more characters)"))) {
    notes.push(`Long texts are cut to ${whole(trail.cut)} characters.`);
  }
  if (trail.without_prompts) notes.push("Prompts are left out, to keep the page small.");
  put("browser-note", notes.join(" "));
  const natural = new Intl.Collator("en", { numeric: true }).compare;
  const distinct = (values) => [...new Set(values)].filter((value) => value !== null).map(String).sort(natural);
  choices("family", distinct(trail.groups.map(({ family }) => family)));
  choices("iteration", distinct(trail.groups.map(({ iteration }) => iteration)));
  choices("outcome", distinct(trail.groups.flatMap(({ trajectories }) => trajectories.map(endOf))));
  choices("recipe", []);
  if (trail.recipes.length > 1) {
    id("recipe").closest("label").hidden = false;
    put("recipe", trail.recipes.map(({ name }, place) => el("option", { value: place }, oneLine(name, 60))));
    id("recipe").addEventListener("change", () => useRecipe(Number(id("recipe").value)));
  }
  legend();
  filter();
  const pick = id("pick"), lanes = id("lanes");
  const turn = (by) => {
    pick.selectedIndex = (pick.selectedIndex + by + pick.options.length) % pick.options.length;
    showGroup(Number(pick.value));
  };
  pick.addEventListener("change", () => showGroup(Number(pick.value)));
  id("previous").addEventListener("click", () => turn(-1));
  id("next").addEventListener("click", () => turn(1));
  for (const name of FILTERS) id(name).addEventListener("input", filter);
  id("search").addEventListener("keydown", (event) => { if (event.key === "Enter") nextHit(); });
  id("next-hit").addEventListener("click", nextHit);
  id("clear").addEventListener("click", clearFilters);
  for (const [name, by] of [["narrower", -1], ["wider", 1]]) {
    id(name).addEventListener("click", () => { zoom = ZOOMS.indexOf(shown.wide) + by; redraw(); });
  }
  lanes.addEventListener("keydown", walk);
  lanes.addEventListener("focusin", (event) => {
    if (event.target.dataset.at !== undefined) choose(Number(event.target.dataset.at));
  });
  lanes.addEventListener("mousemove", (event) => {
    const cell = event.target.closest(".cell");
    showTip(event, cell ? cellTip(Number(cell.dataset.at)) : null);
  });
  lanes.addEventListener("mouseleave", (event) => showTip(event, null));
  pick.value = String(trail.first);
  showGroup(trail.first);
  addEventListener("hashchange", follow);
  follow();
}
