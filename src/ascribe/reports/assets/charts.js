// The figures: bars and lines, drawn from the same specifications as the exported pictures.

const SHARES = new Set([
  "success", "low", "high", "valid", "signal", "alone", "equal_groups", "share", "pace",
  "leave_one_out", "singleton", "contrasting_clusters", "trajectories", "gradient",
  "cut", "cut_turns", "expected_equal", "positive_share", "gradient_share",
  "held_out", "signal_share", "singleton_share", "parse_rate", "invalid_share",
]);
const MOST_ROWS = 200, WIDE = 520, HIGH = 200;

// A table of rows that all have the same names; `heads` are other heads of columns.
function table(rows, name, heads = {}, linkOf = () => null) {
  if (!rows.length) return el("p", {}, "None.");
  const shareOf = (key) => SHARES.has(key) && (key !== "trajectories" || name === "lengths") || (name === "lengths" && key === "steps");
  const fill = (key) => (row) => {
    const value = row[key], link = key === "step" ? linkOf(row) : null;
    if (link) return el("a", { href: link }, whole(value));
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value !== "number") return value === null ? "–" : el("span", { class: "name" }, value);
    return shareOf(key) ? percent(value) : number(value);
  };
  const columns = Object.keys(rows[0]).map((key) => [heads[key] || key.replaceAll("_", " "), fill(key), typeof rows[0][key] === "number" ? "number" : ""]);
  return [listing(`Table: ${name.replaceAll("_", " ")}`, columns, rows.slice(0, MOST_ROWS)),
    rows.length > MOST_ROWS ? el("p", {}, `${whole(rows.length - MOST_ROWS)} more rows are in the tables that the report can write.`) : null];
}

const tipOf = (row) => Object.entries(row).filter(([name]) => name !== "order")
  .map(([name, value]) => `${name.replaceAll("_", " ")}: ${typeof value !== "number" ? value : SHARES.has(name) ? percent(value) : number(value)}`);

function pointed(made, row) {
  made.addEventListener("mousemove", (event) => showTip(event, tipOf(row)));
  made.addEventListener("mouseleave", (event) => showTip(event, null));
  return made;
}

function key(scale) {
  return el("ul", { class: "key" }, scale.domain.map((name, at) => {
    const dot = el("span", { class: "dot" });
    dot.style.background = scale.range[at];
    return el("li", {}, dot, name);
  }));
}

const axisOf = ({ scale, axis }, most) => {
  const top = scale && Array.isArray(scale.domain) ? scale.domain[1] : most, share = axis && axis.format === "%";
  return { top: top || 1, words: (value) => (share ? percent(value) : number(+value.toPrecision(3))) };
};

// Horizontal bars; each value of the named axis is a line, and its parts stand end to end.
function bars({ encoding: { x: by, y: of, color }, mark, values }) {
  const names = [...new Set(values.map((row) => row[of.field]))];
  const total = (rows) => rows.reduce((sum, row) => sum + row[by.field], 0), own = (name) => values.filter((row) => row[of.field] === name);
  const { top, words } = axisOf(by, Math.max(...names.map((name) => total(own(name)))));
  const segment = (row) => {
    const made = pointed(el("span", { class: "segment" }), row);
    made.style.width = `${100 * Math.min(1, row[by.field] / top)}%`;
    made.style.background = color ? color.scale.range[color.scale.domain.indexOf(row[color.field])] : mark.color;
    return made;
  };
  return el("div", { class: "bars" }, names.map((name) => {
    const rows = own(name).sort((a, b) => (a.order ?? 0) - (b.order ?? 0));
    return el("div", { class: "bar-row" }, el("span", { class: "bar-name name", title: name }, String(name)),
      el("span", { class: "line" }, el("span", { class: "track" }, rows.map(segment)), el("span", { class: "much" }, words(total(rows)))));
  }), color ? key(color.scale) : null);
}

// Lines over the iterations, told apart by colours and dashes.
function lines({ encoding, mark, values, rule }) {
  const { x, y, color, strokeDash } = encoding, names = color ? color.scale.domain : [null];
  const { top, words } = axisOf(y, Math.max(...values.map((row) => row[y.field])));
  const spots = [...new Set(values.map((row) => row[x.field]))];
  const left = 44, across = (row) => left + (WIDE - left - 12) * (spots.length > 1 ? spots.indexOf(row[x.field]) / (spots.length - 1) : 0.5);
  const down = (value) => 10 + (HIGH - 34) * (1 - value / top);
  const made = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, "aria-hidden": "true" });
  for (const share of [0, 0.5, 1]) {
    const at = down(share * top);
    made.append(svg("line", { class: "axis", x1: left, x2: WIDE - 12, y1: at, y2: at }), svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, words(share * top)));
  }
  for (const spot of new Set([spots[0], spots[spots.length >> 1], spots[spots.length - 1]])) {
    made.append(svg("text", { x: across({ [x.field]: spot }), y: HIGH - 6, "text-anchor": "middle" }, String(spot)));
  }
  if (rule) for (const { [rule.y.field]: value } of rule.values) made.append(svg("line", { class: "threshold", x1: left, x2: WIDE - 12, y1: down(value), y2: down(value) }));
  names.forEach((name, at) => {
    const own = values.filter((row) => name === null || row[color.field] === name), fill = color ? color.scale.range[at] : mark.color;
    const dash = strokeDash ? strokeDash.scale.range[at % strokeDash.scale.range.length].join(" ") : "1 0";
    made.append(svg("polyline", { points: own.map((row) => `${across(row)},${down(row[y.field])}`).join(" "), stroke: fill, "stroke-dasharray": dash }),
      ...own.map((row) => pointed(svg("circle", { cx: across(row), cy: down(row[y.field]), r: 3.5, fill }), row)));
  });
  return el("div", {}, made, el("p", { class: "soft" }, `${y.title}, by ${x.title}`), color ? key(color.scale) : null);
}

// A second layer is a rule: a threshold.
function chart({ spec }) {
  const layers = spec.layer || [spec], { values } = spec.data;
  const over = layers[1] ? { ...layers[1].encoding, values: layers[1].data.values } : null;
  const encoding = { ...spec.encoding, ...layers[0].encoding };
  return (layers[0].mark.type === "bar" ? bars : lines)({ mark: layers[0].mark, encoding, values, rule: over });
}

function figureOf(name) {
  const figure = data.figures[name];
  return figure ? el("figure", {}, el("h3", {}, figure.title), el("figcaption", {}, figure.caption), el("div", { class: "chart" }, chart(figure)),
    el("details", {}, el("summary", {}, "Numbers"), table(data.tables[figure.table], figure.table))) : null;
}
