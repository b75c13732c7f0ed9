// The page: verdict, figures with their numbers, comparison, problems.

const root = document.documentElement;

function isDark() {
  if (root.dataset.theme) return root.dataset.theme === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// The numbers under the pointer: the data of a mark, named as in the figure's table.
function markTip(handler, event, item, value) {
  const lines = value && typeof value === "object" ? Object.entries(value)
    .filter(([name]) => name !== "order")
    .map(([name, one]) => `${name.replaceAll("_", " ")}: ` +
      (typeof one !== "number" ? one : SHARES.has(name) ? percent(one) : number(one))) : null;
  showTip(event, lines);
}

// Expressions are interpreted, not compiled: the policy of the page forbids making code from text.
function draw(holder, figure) {
  const options = {
    ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: markTip,
    config: data.themes[isDark() ? "dark" : "light"],
  };
  const spec = { ...figure.spec, description: `${figure.title}. ${figure.caption}` };
  return window.vegaEmbed(holder, spec, options)
    .catch((error) => { holder.textContent = `This figure cannot be drawn: ${error.message}`; });
}

const drawn = [];

function figureOf(name) {
  const figure = data.figures[name];
  if (!figure) return null;
  const holder = el("div", { class: "chart" });
  drawn.push([holder, figure]);
  return el("figure", {},
    el("h3", {}, figure.title), el("figcaption", {}, figure.caption), holder,
    el("details", {}, el("summary", {}, "Numbers"), table(data.tables[figure.table], figure.table)));
}

// Figures need the width of their place, which a folded section does not have.
function drawAll() {
  if (!id("fold").open) return Promise.resolve();
  return Promise.all(drawn.map(([holder, figure]) => draw(holder, figure))).then(() => { root.dataset.drawn = "yes"; });
}

// Without a section that the data does not fill.
function drop(...names) {
  for (const name of names) {
    document.getElementById(name).remove();
    document.querySelector(`nav a[href="#${name}"]`).remove();
  }
}

function verdict() {
  put("headline", data.verdict.headline);
  put("advice", data.verdict.advice);
  put("situation", data.verdict.situation.join(" "));
  const serious = ["bad", "warning"].map((level_) => [level_, data.verdict.findings.filter(({ level: one }) => one === level_).length]);
  put("training-note", ["signal, states and figures", ...serious.filter(([, count]) => count)
    .map(([level_, count]) => `${count} ${level_}${level_ === "warning" && count > 1 ? "s" : ""}`)].join(", "));
  const word = { bad: "Bad", warning: "Warning", note: "Note", good: "Good" };
  const others = data.verdict.findings.filter(({ message }) => message !== data.verdict.headline);
  put("findings", others.map((finding) =>
    el("li", { class: finding.level, "data-finding": finding.finding },
      el("p", {}, el("span", { class: "level" }, word[finding.level]), finding.message),
      finding.advice ? el("p", { class: "try" }, finding.advice) : null)));
}

function problems() {
  const levels = { fatal: "bad", error: "bad", warning: "warning" };
  const rows = data.tables.problems.map((one) =>
    el("li", { class: levels[one.severity] || "note" },
      el("p", {}, el("span", { class: "level" }, one.kind),
        `${one.severity}, ${whole(one.count)} found in ${whole(one.row_count)} rows: ${one.detail}.`),
      el("p", { class: "try" }, `${one.advice[0].toUpperCase()}${one.advice.slice(1)}.`)));
  if (rows.length) put("problems", el("h3", {}, "Problems of the file"), el("ul", { class: "findings" }, rows));
}

function comparison() {
  if (!data.comparison) return;
  // The recipes give two columns their names.
  const { first, second, sentence } = data.comparison;
  put("comparison", [
    el("h3", {}, "Two recipes"), el("p", {}, sentence), table(data.tables.signs, "signs", { first, second }),
    el("details", {}, el("summary", {}, "Largest changes of sign"),
      table(data.tables.changed, "changed", { first, second }, stepLink))]);
}

function source() {
  const files = data.files.length > 3 ? [...data.files.slice(0, 2), `${data.files.length - 2} files more`] : data.files;
  put("source",
    el("p", {}, el("span", { class: "name" }, files.join(", ")), data.recipe ? [", credited by ", el("strong", {}, data.recipe)] : null),
    data.recipe ? el("p", {}, `${whole(data.trajectories)} trajectories of ${whole(data.groups)} tasks, ${whole(data.rows)} steps; ${percents(data.success)} % succeeded${data.won ? "" : " (a return above 0)"}.`) : [],
    data.recipe ? el("details", {}, el("summary", {}, "How it was read and credited"),
      data.notes.slice(0, 3).map((note) => el("p", {}, note)), el("code", {}, data.parameters)) : []);
  put("made", `Made by Ascribe ${data.version}. This file contains everything it shows and fetches nothing.`);
}

// The reader's theme is kept where the browser allows it; a page from a disk may have no storage.
const THEME = "ascribe-theme";

function stored(value) {
  try {
    if (value) localStorage.setItem(THEME, value);
    return localStorage.getItem(THEME);
  } catch { return null; }
}

function themeButton() {
  const button = document.getElementById("theme");
  const kept = stored();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  label();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    stored(root.dataset.theme);
    label();
    drawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    label();
    drawAll();
  });
}

source();
for (const holder of document.querySelectorAll("[data-figures]")) {
  holder.replaceChildren(...holder.dataset.figures.split(" ").map(figureOf).filter(Boolean));
}
themeButton();
id("fold").addEventListener("toggle", drawAll);
if (data.recipe) {
  verdict();
  comparison();
  problems();
  decisionTable();
  trajectoryTable();
  startBrowser();
} else {
  drop("decisions", "trajectories", "browser");
  document.querySelector("h1").textContent = "How the run went";
}
id("fold").open = Boolean(data.tables.run || data.comparison);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#step/']");
  if (link && link.hash === location.hash) follow();
});
root.dataset.ready = "yes";
