// Text from sessions is untrusted: it is only ever put on the page as text.

const data = JSON.parse(document.getElementById("data").textContent);
const answers = data.answers || null;
const id = (name) => document.getElementById(name);

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      made.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function put(name, ...children) {
  id(name).replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

function button(words, act, attributes = {}) {
  const made = el("button", { type: "button", ...attributes }, words);
  made.addEventListener("click", act);
  return made;
}

const whole = (value) => value.toLocaleString("en-US");
const several = (count, thing) => `${whole(count)} ${thing}${count === 1 ? "" : "s"}`;
const compare = new Intl.Collator("en", { numeric: true }).compare;

// A share in whole percents, halves to even as in the sentences.
function percents(share) {
  const near = Math.round(100 * share);
  return (Math.abs(100 * share % 1) === 0.5 && near % 2 ? near - 1 : near) || 0;
}

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

// Seconds as people say them.
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 100) return `${number(+seconds.toPrecision(2))} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${number(+(seconds / 3600).toPrecision(3))} h`;
}

const oneLine = (words, most) => {
  const line = words.replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
};

// A sentence whose actions stand between backticks, as code.
const prose = (words) => words.split("`").map((part, place) => (place % 2 ? el("code", { class: "name" }, part) : part));

// What an attempt came to: a share won, or what was earned.
const graded = Boolean(answers) && answers.happened.outcome === "earned";
const amount = (value) => (graded ? number(value) : `${percents(value)} %`);
const reached = graded ? "earned" : "won";

// A table whose cells have the heads of their columns at hand, for narrow screens; a column is
// its head, what fills its cell, and its class.
function listing(label, columns, rows, heads = columns.map(([head]) => head)) {
  const made = rows.map((row) => el("tr", {}, columns.map(([head, fill, kind]) =>
    el("td", { "data-head": head, class: kind || null }, fill(row)))));
  const head = heads.map((each, place) => el("th", { scope: "col", class: columns[place][2] || null }, each));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    el("table", { class: "listing" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, made)));
}

// A bar from 0 to 1 with its interval as a line over it; the number stands beside it as text.
function bar(share, low = null, high = null, kind = "") {
  const part = (name, from, to) => {
    const made = el("span", { class: name });
    made.style.left = `${100 * from}%`;
    made.style.width = `${Math.max(0, 100 * (to - from))}%`;
    return made;
  };
  return el("span", { class: `share ${kind}`, "aria-hidden": "true" }, part("fill", 0, share),
    low === null ? null : part("whisker", low, high));
}

// What is earned lies between the least and the most of all sessions; a share between 0 and 1.
const scaled = (value) => {
  if (!graded) return value;
  const all = [...answers.happened.versions.flatMap(({ low, high }) => [low, high]), 0, answers.happened.high];
  const least = Math.min(...all), most = Math.max(...all);
  return most > least ? (value - least) / (most - least) : 0;
};

// A few lines of text next to the pointer; none hide it.
function showTip(event, lines) {
  const tip = id("tip");
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
  const { clientX: x, clientY: y } = event, { offsetWidth: wide, offsetHeight: high } = tip;
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - wide - 8))}px`;
  tip.style.top = `${y + 18 + high > innerHeight ? y - high - 12 : y + 18}px`;
}

// Arrow keys move the focus among the elements; one of them at a time can be reached by Tab.
function roving(holder, selector, wide = 1) {
  holder.addEventListener("keydown", (event) => {
    const all = [...holder.querySelectorAll(selector)], at = all.indexOf(event.target.closest(selector));
    const across = typeof wide === "function" ? wide() : wide;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + across, ArrowUp: at - across, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (all[to]) all[to].focus();
  });
  holder.addEventListener("focusin", (event) => {
    const one = event.target.closest(selector);
    if (!one) return;
    for (const each of holder.querySelectorAll(`${selector}[tabindex="0"]`)) each.tabIndex = -1;
    one.tabIndex = 0;
  });
}
