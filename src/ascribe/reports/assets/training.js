// For those who train: the verdict on the signal, figures with their numbers, recipes, problems.

function drawFigures() {
  for (const holder of document.querySelectorAll("[data-figures]")) {
    if (!holder.children.length) holder.replaceChildren(...holder.dataset.figures.split(" ").map(figureOf).filter(Boolean));
  }
}

function advised() {
  const { headline, advice, situation, findings } = answers.training;
  put("headline", headline);
  put("advice", advice);
  put("situation", situation.join(" "));
  const serious = ["bad", "warning"].map((kind) => [kind, findings.filter(({ level: own }) => own === kind).length]);
  put("training-note", ["signal, states, recipe and figures", ...serious.filter(([, count]) => count)
    .map(([kind, count]) => `${count} ${kind}${kind === "warning" && count > 1 ? "s" : ""}`)].join(", "));
  const word = { bad: "Bad", warning: "Warning", note: "Note", good: "Good" };
  put("advised", findings.filter(({ message: words }) => words !== headline).map((each) =>
    el("li", { class: each.level, "data-finding": each.finding },
      el("p", {}, el("span", { class: "level" }, word[each.level]), each.message),
      each.advice ? el("p", { class: "try" }, each.advice) : null)));
  put("credited", answers.training.recipe, " ", el("code", {}, data.parameters));
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
  const { first, second, sentence: words } = data.comparison;
  put("comparison", el("h3", {}, "Two recipes"), el("p", {}, words), table(data.tables.signs, "signs", { first, second }));
}
