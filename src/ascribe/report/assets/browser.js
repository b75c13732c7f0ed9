// The trajectory browser: one group at a time, a lane for each trajectory, a cell for each step.

const NAME = 150, WIDE = 46, HIGH = 30, GAP_X = 14, GAP_Y = 22;
const LEVELS = ["neg3", "neg2", "neg1", "zero", "pos1", "pos2", "pos3"];
const WHY = {
  singleton: "no other step is in this state",
  group_of_one: "its task has only one trajectory",
  zero_variance: "everything it is compared with earned the same",
  missing_state: "it has no state",
  revisit: "only the first visit to a state counts",
  truncated: "its trajectory was cut by a limit and does not count",
  padding: "it is padding",
  dropped: "its group was dropped",
  same_action: "every peer in this state took the same action",
  counterfactual: "it was taken only to measure the other agents",
  no_target: "the answer that it corrects is not in the batch",
};

const trail = data.browser;
let shown = null;

function level(advantage, reason) {
  if (trail.reasons[reason] !== "credited") return "none";
  const size = Math.min(Math.abs(advantage) / trail.scale, 1);
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

function ending(run) {
  const end = run.won ? "success" : run.won === false && !run.cut ? "failure" : null;
  return [`return ${number(run.return)}`, end, run.cut ? "cut" : null].filter(Boolean).join(", ");
}

function option(group, place) {
  const runs = group.trajectories;
  const won = runs.filter((run) => run.won).length;
  const outcome = runs.some((run) => run.won !== null) ? `${won} of ${runs.length} succeeded` : `${runs.length} trajectories`;
  const parts = [group.name, group.family, outcome, trail.batches > 1 && !group.name.startsWith(group.batch) ? group.batch : null];
  return el("option", { value: place }, parts.filter(Boolean).join(" · "));
}

// The end of a name tells trajectories apart; the whole of it is a step away.
function shortName(name, group) {
  const own = name.startsWith(`${group.batch}: `) ? name.slice(group.batch.length + 2) : name;
  return own.length > 20 ? `…${own.slice(-19)}` : own;
}

function showGroup(place) {
  const group = trail.groups[place];
  const lanes = group.trajectories.map((run, index) => ({ ...run, index }))
    .sort((a, b) => b.return - a.return || a.length - b.length || a.index - b.index);
  const laneOf = [];
  const field = el("div", { class: "field" });
  const lines = svg("svg", { "aria-hidden": "true" });
  field.append(lines);
  const cells = new Map();
  lanes.forEach((run, lane) => {
    const name = el("div", { class: "lane-name" },
      el("span", { class: "name", title: run.name }, shortName(run.name, group)), el("span", { class: "end" }, ending(run)));
    name.style.width = `${NAME}px`;
    const row = el("div", { class: "lane" }, name);
    row.style.height = `${HIGH}px`;
    row.style.marginBottom = `${GAP_Y}px`;
    row.style.gap = `${GAP_X}px`;
    for (let at = run.start; at < run.start + run.length; at += 1) {
      laneOf[at] = lane;
      const advantage = group.cells.advantage[at], reason = group.cells.reason[at];
      const button = el("button", {
        type: "button", class: `cell ${level(advantage, reason)}`, tabindex: "-1",
        "aria-label": `${run.name}, step ${group.cells.step[at]}: ` +
          (level(advantage, reason) === "none" ? "no credit" : `credit ${signed(advantage)}`),
      }, brief(advantage, reason));
      button.style.width = `${WIDE}px`;
      button.style.height = `${HIGH}px`;
      button.dataset.at = at;
      cells.set(at, button);
      row.append(button);
    }
    field.append(row);
  });
  shown = { group, lanes, laneOf, cells, lines, place };
  markHits();
  drawLines();
  put("lanes", field);
  put("detail");
  const first = lanes[0].start;
  cells.get(first).tabIndex = 0;
  document.getElementById("lanes").scrollTo(0, 0);
}

// Equal states: from each trajectory's first visit to the next trajectory's that was there too.
function drawLines() {
  const { group, lanes, laneOf, lines } = shown;
  const longest = Math.max(...lanes.map((run) => run.length));
  lines.setAttribute("width", NAME + longest * (WIDE + GAP_X) + GAP_X);
  lines.setAttribute("height", lanes.length * (HIGH + GAP_Y));
  const visits = new Map();
  lanes.forEach((run) => {
    const seen = new Set();
    for (let at = run.start; at < run.start + run.length; at += 1) {
      const label = group.cells.label[at];
      if (label < 0 || seen.has(label)) continue;
      seen.add(label);
      if (!visits.has(label)) visits.set(label, []);
      visits.get(label).push([laneOf[at], at - run.start]);
    }
  });
  const middle = ([lane, step]) =>
    [NAME + GAP_X + step * (WIDE + GAP_X) + WIDE / 2 - 14, lane * (HIGH + GAP_Y) + HIGH / 2];
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
  for (const [at, button] of shown.cells) {
    button.classList.toggle("peer", label >= 0 && shown.group.cells.label[at] === label);
  }
}

function choose(at) {
  for (const [other, button] of shown.cells) {
    button.classList.toggle("chosen", other === at);
    button.tabIndex = other === at ? 0 : -1;
  }
  mark(shown.group.cells.label[at]);
  put("detail", ...detail(at).filter(Boolean));
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
  const value = term.value[at], reason = trail.reasons[term.reason[at]];
  if (reason !== "credited") return `no credit: ${WHY[reason] || reason}`;
  const { text: words, beyond } = trail.sentences[name][term.way[at]];
  const filled = words.replace(/\{(own|baseline|peers|alike)(:\+)?\}/g, (_, field, sign) => {
    const figure = term[field][at];
    if (field === "peers" || field === "alike") return whole(figure);
    return sign ? signed(figure) : number(figure);
  });
  if (beyond) return `${filled}; ${beyond}; so ${signed(value)}`;
  const difference = term.difference[at], spread = value ? difference / value : 1;
  if (Math.abs(spread - 1) < 0.005) return `${filled}; so ${signed(value)}`;
  return `${filled}; so ${signed(difference)}, divided by ${number(spread)}: ${signed(value)}`;
}

function total(group, at) {
  const names = Object.keys(group.terms);
  const parts = names.map((name) => {
    const weight = trail.weights[name], value = group.terms[name].value[at];
    return (weight === 1 ? "" : `${number(weight)} × `) + `${name} ${signed(value)}`;
  });
  return `Advantage ${signed(group.cells.advantage[at])} = ${parts.join(" + ")}`;
}

// A message, folded if it is long: who wrote it, its tool calls, its text.
function message({ role, text: index, thought, calls }, open) {
  const words = index < 0 ? "" : trail.texts[index];
  const parts = [];
  if (thought >= 0) parts.push(el("details", {}, el("summary", {}, "Reasoning"), el("pre", { tabindex: "0" }, trail.texts[thought])));
  if (words) parts.push(el("pre", { tabindex: "0" }, words));
  for (const [name, given] of calls) {
    parts.push(el("p", { class: "call" }, el("strong", {}, name), el("code", {}, given < 0 ? "{}" : trail.texts[given])));
  }
  const called = calls.map(([name]) => `calls ${name}`).join(", ");
  const line = [called, words.replace(/\s+/g, " ").slice(0, 110)].filter(Boolean).join(" · ");
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
    const { messages: all, step, advantage, reason } = shown.group.cells;
    for (let other = run.start; other < run.start + run.length; other += 1) {
      whole_.append(el("h4", {}, `Step ${step[other]}, credit ${brief(advantage[other], reason[other])}`),
        ...all[other].map((each) => message(each, false)));
    }
  });
  return el("div", { class: "messages" }, el("h4", {}, "Messages of this step"),
    messages.map((each) => message(each, true)), whole_);
}

function text(title, index) {
  if (index === undefined || index < 0) return null;
  return el("div", {}, el("h4", {}, title), el("pre", { tabindex: "0" }, trail.texts[index]));
}

function detail(at) {
  const { group, lanes, laneOf } = shown, cells = group.cells, run = lanes[laneOf[at]];
  const sums = Object.entries(group.terms).map(([name, term]) =>
    el("p", { class: "sum" }, el("strong", {}, `${name}: `), sentence(name, term, at), "."));
  const facts = `Reward ${number(cells.reward[at])}; return from this step on ${number(cells.return[at])}` +
    (cells.valid[at] ? "." : "; the environment did not understand the action.");
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
      named("agent", ", by agent "), named("corrects", ", which corrects ")),
    el("p", { class: "sum" }, total(group, at) + "."), ...sums, el("p", {}, facts),
    conversation,
    conversation ? el("details", {}, el("summary", {}, "State and action as they were compared"), texts) : texts,
    peersOf(at),
  ];
}

const MOST_PEERS = 40;

function peersOf(at) {
  const { group, lanes, laneOf } = shown, cells = group.cells, label = cells.label[at];
  const peers = [...shown.cells.keys()].filter((other) => other !== at && cells.label[other] === label);
  if (label < 0 || !peers.length) return el("p", {}, "No other step shown here is in this state.");
  const rows = peers.slice(0, MOST_PEERS).map((other) => {
    const run = lanes[laneOf[other]];
    const go = el("button", { type: "button" }, `step ${cells.step[other]}`);
    go.addEventListener("click", () => shown.cells.get(other).focus());
    const action = cells.action[other] < 0 ? "–" : trail.texts[cells.action[other]].slice(0, 120);
    return el("tr", {},
      el("td", { class: "name" }, run.name), el("td", {}, go), el("td", { class: "name" }, action),
      el("td", { class: "nowrap" }, cells.state[other] === cells.state[at] ? "same" : "similar"),
      el("td", { class: "number" }, number(cells.return[other])),
      el("td", { class: "number" }, brief(cells.advantage[other], cells.reason[other])));
  });
  const head = ["trajectory", "step", "action", "state", "return", "credit"].map((name, place) =>
    el("th", { scope: "col", ...(place > 3 ? { class: "number" } : {}) }, name));
  const more = peers.length > MOST_PEERS ? ` The first ${MOST_PEERS} are listed.` : "";
  return el("div", {},
    el("h4", {}, `${whole(peers.length)} other steps in this state.${more}`),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Steps in the same state" },
      el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))));
}

// Search: the steps whose texts hold what was asked for, in every group.
let hits = [], current = -1;

function textsOf(cells, at) {
  const messages = (cells.messages && cells.messages[at]) || [];
  return [
    ...["state", "action", "observation", "response"].map((name) => (cells[name] ? cells[name][at] : -1)),
    ...messages.flatMap(({ text: index, thought, calls }) => [index, thought, ...calls.map(([, given]) => given)]),
  ];
}

function search(query) {
  const asked = query.trim().toLowerCase();
  const found = new Set();
  trail.texts.forEach((one, index) => { if (asked && one.toLowerCase().includes(asked)) found.add(index); });
  hits = [];
  current = -1;
  trail.groups.forEach(({ cells }, place) => cells.step.forEach((_, at) => {
    const named = asked && cells.messages && cells.messages[at].some(({ calls }) =>
      calls.some(([name]) => name.toLowerCase().includes(asked)));
    if (named || textsOf(cells, at).some((index) => found.has(index))) hits.push([place, at]);
  }));
  const groups = new Set(hits.map(([place]) => place)).size;
  put("found", asked ? `${whole(hits.length)} steps in ${whole(groups)} groups` : "");
  document.getElementById("next-hit").disabled = !hits.length;
  markHits();
}

function markHits() {
  const here = new Set(hits.filter(([place]) => place === shown.place).map(([, at]) => at));
  for (const [at, button] of shown.cells) button.classList.toggle("hit", here.has(at));
}

function nextHit() {
  if (!hits.length) return;
  current = (current + 1) % hits.length;
  const [place, at] = hits[current];
  if (place !== shown.place) {
    document.getElementById("pick").value = String(place);
    showGroup(place);
  }
  shown.cells.get(at).focus();
  put("found", `${whole(current + 1)} of ${whole(hits.length)} steps`);
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
  put("browser-note", notes.join(" "));
  put("pick", trail.groups.map(option));
  const bounds = [-0.875, -0.545, -0.18, 0, 0.18, 0.545, 0.875];
  put("legend", bounds.map((share, place) =>
    el("li", { class: LEVELS[place] }, signed(+(share * trail.scale).toPrecision(2)))),
    el("li", { class: "none" }, "– no credit"));
  const pick = document.getElementById("pick"), lanes = document.getElementById("lanes");
  const turn = (by) => {
    pick.value = String((shown.place + by + trail.groups.length) % trail.groups.length);
    showGroup(Number(pick.value));
  };
  pick.addEventListener("change", () => showGroup(Number(pick.value)));
  document.getElementById("previous").addEventListener("click", () => turn(-1));
  document.getElementById("next").addEventListener("click", () => turn(1));
  const asked = document.getElementById("search");
  asked.addEventListener("input", () => search(asked.value));
  asked.addEventListener("keydown", (event) => { if (event.key === "Enter") nextHit(); });
  document.getElementById("next-hit").addEventListener("click", nextHit);
  lanes.addEventListener("keydown", walk);
  lanes.addEventListener("focusin", (event) => {
    if (event.target.dataset.at !== undefined) choose(Number(event.target.dataset.at));
  });
  const place = String(trail.first);
  pick.value = place;
  showGroup(Number(place));
}
