// What is packed: gzip in Base64, behind the page, opened when it is first needed.

const parts = new Map();
const loaded = document.readyState === "loading"
  ? new Promise((done) => { document.addEventListener("DOMContentLoaded", done); }) : Promise.resolve();
const UNREADABLE = "This browser cannot open the sessions in this page: it lacks DecompressionStream. " +
  "Chrome and Edge 80, Firefox 113, Safari 16.4 and later have it. Everything else on the page can be read.";

async function inflate(name) {
  await loaded;
  if (typeof DecompressionStream === "undefined") throw new Error(UNREADABLE);
  const bytes = Uint8Array.from(atob(id(`packed-${name}`).textContent), (char) => char.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(plain).text());
}

function part(name) {
  if (!parts.has(name)) parts.set(name, inflate(name));
  return parts.get(name);
}

// All sessions as rows, and their places by name and by task.
let sessions = null, numberOf = null, ofTask = null;

async function allSessions() {
  if (!sessions) {
    const rows = await part("sessions");
    numberOf = new Map(rows.map(({ session }, place) => [session, place]));
    ofTask = new Map();
    rows.forEach(({ task }, place) => { if (!ofTask.has(task)) ofTask.set(task, []); ofTask.get(task).push(place); });
    sessions = rows;
  }
  return sessions;
}

// A session with its steps: its row, its task's group, and the texts; null if it is not on the page.
async function open(place) {
  await allSessions();
  const { starts } = data.browser;
  let chunk = 0;
  while (chunk + 1 < starts.length && starts[chunk + 1] <= place) chunk += 1;
  if (!starts.length) return null;
  const { texts, groups } = await part(`chunk-${chunk}`);
  for (const group of groups) {
    const run = group.trajectories.find(({ number: own }) => own === place);
    if (run) return { ...sessions[place], ...run, group, texts, cells: group.cells, credits: group.credits };
  }
  return null;
}

const textOf = ({ texts }, index) => (index === undefined || index === null || index < 0 ? null : texts[index]);
const stepsOf = ({ start, length }) => Array.from({ length }, (_, place) => start + place);
const place = (run, step) => stepsOf(run).find((at) => run.cells.step[at] === step);

// The numbers of texts in all parts of a message, in the order in which they are shown.
const wordsOf = ({ thought = -1, text, calls = [] }) => [thought, text, ...calls.flatMap((call) => call.slice(1))];

// The sessions that hold a text: by number, the first step that does, and a piece of it.
async function searched(asked, progress) {
  const found = new Map(), wanted = asked.toLowerCase();
  for (let chunk = 0; chunk < data.chunks; chunk += 1) {
    const { texts, groups } = await part(`chunk-${chunk}`);
    const hits = new Set(texts.flatMap((text, index) => (text.toLowerCase().includes(wanted) ? [index] : [])));
    for (const { trajectories, cells } of hits.size ? groups : []) {
      for (const run of trajectories) {
        for (const at of stepsOf(run)) {
          const own = cells.messages && cells.messages[at].length ? cells.messages[at].flatMap(wordsOf)
            : ["state", "action", "observation", "response"].map((name) => (cells[name] ? cells[name][at] : -1));
          const hit = own.find((index) => hits.has(index));
          if (hit === undefined) continue;
          if (!found.has(run.number)) found.set(run.number, { step: cells.step[at], piece: around(texts[hit], wanted), steps: 0 });
          found.get(run.number).steps += 1;
        }
      }
    }
    progress((chunk + 1) / data.chunks);
  }
  return found;
}

function around(text, wanted) {
  const at = Math.max(0, text.toLowerCase().indexOf(wanted));
  return `${at > 40 ? "…" : ""}${oneLine(text.slice(Math.max(0, at - 40), at + wanted.length + 60), 140)}`;
}
