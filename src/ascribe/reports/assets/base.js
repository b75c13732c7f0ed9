// Text from rollouts is untrusted: it is only ever put on the page as text.

const data = JSON.parse(document.getElementById("data").textContent);

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) {
      made.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  return made;
}

function svg(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function put(id, ...children) {
  document.getElementById(id).replaceChildren(...children.flat());
}

const whole = (value) => value.toLocaleString("en-US");

function percent(share) {
  if (share > 0 && share < 0.001) return "under 0.1 %";
  return (100 * share).toFixed(1).replace(/\.0$/, "") + " %";
}

// A number for reading: three digits, and a real minus.
function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return whole(value).replace("-", "−");
  const size = Math.abs(value);
  if (size < 1e-9) return "0";
  const text = size >= 1000 || size < 0.001 ? value.toExponential(2) : String(+value.toPrecision(3));
  return text.replace("-", "−");
}

const signed = (value) => (value > 1e-9 ? "+" : "") + number(value);

const SHARES = new Set([
  "success", "low", "high", "valid", "signal", "alone", "equal_groups", "share", "pace",
  "leave_one_out", "singleton", "contrasting_clusters", "trajectories", "gradient",
  "cut", "cut_turns", "expected_equal", "positive_share", "gradient_share",
  "held_out", "signal_share", "singleton_share", "parse_rate", "invalid_share",
]);
const MOST_ROWS = 200;

function cell(name, value, isShare) {
  if (value === null) return el("td", {}, "–");
  if (typeof value === "boolean") return el("td", {}, value ? "yes" : "no");
  if (typeof value !== "number") return el("td", { class: "name" }, value);
  return el("td", { class: "number" }, isShare ? percent(value) : number(value));
}

// A table of rows that all have the same names; `name` describes it to screen readers, `heads` are
// other heads of columns, and `linkOf` gives the address of the step that a row is about.
function table(rows, name, heads = {}, linkOf = () => null) {
  if (!rows.length) return el("p", {}, "None.");
  const names = Object.keys(rows[0]);
  const shares = names.map((key) => SHARES.has(key) && (key !== "trajectories" || name === "lengths"));
  if (name === "lengths") shares[names.indexOf("steps")] = true;
  const head = names.map((key) => {
    const right = typeof rows[0][key] === "number" ? { class: "number" } : {};
    return el("th", { scope: "col", ...right }, heads[key] || key.replaceAll("_", " "));
  });
  const body = rows.slice(0, MOST_ROWS).map((row) =>
    el("tr", {}, names.map((key, place) => {
      const link = key === "step" ? linkOf(row) : null;
      return link ? el("td", { class: "number" }, el("a", { href: link }, whole(row[key]))) : cell(key, row[key], shares[place]);
    })));
  const more = rows.length > MOST_ROWS
    ? el("p", {}, `${whole(rows.length - MOST_ROWS)} more rows are in the tables that the report can write.`) : null;
  return el("div", {},
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Table: ${name.replaceAll("_", " ")}` },
      el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body))),
    more);
}

// A few lines of text next to the pointer; none hide it.
function showTip(event, lines) {
  const tip = document.getElementById("tip");
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
  const { clientX: x, clientY: y } = event, { offsetWidth: wide, offsetHeight: high } = tip;
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - wide - 8))}px`;
  tip.style.top = `${y + 18 + high > innerHeight ? y - high - 12 : y + 18}px`;
}
