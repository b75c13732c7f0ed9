// The page is put together: the overview at once, what is packed after the first paint.

const root = document.documentElement;

function isDark() {
  if (root.dataset.theme) return root.dataset.theme === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
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
  const kept_ = stored();
  if (kept_ === "light" || kept_ === "dark") root.dataset.theme = kept_;
  const label = () => { id("theme").textContent = isDark() ? "Light" : "Dark"; };
  label();
  id("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    stored(root.dataset.theme);
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
}

themeButton();
const files = data.files.length > 3 ? [...data.files.slice(0, 2), `${data.files.length - 2} files more`] : data.files;
put("title", el("span", { class: "name" }, files.join(", ")));
put("made", `Made by Ascribe ${data.version}. This file contains everything it shows and fetches nothing.`);
id("fold").addEventListener("toggle", drawFigures);
if (answers) {
  put("sentence", prose(answers.happened.sentence));
  put("versions", versionTable());
  showGrid();
  put("balance", balance());
  showFindings();
  showChanges();
  advised();
  comparison();
  problems();
  addEventListener("hashchange", route);
  startSessions().catch((error) => put("sessions-note", error.message)).finally(() => { root.dataset.sessions = "yes"; });
  route();
} else {
  for (const name of ["changed", "happened", "separates", "sessions"]) id(name).remove();
  id("nav").remove();
  put("training-note", "how the run went");
}
id("fold").open = Boolean(data.tables.run || data.comparison);
root.dataset.ready = "yes";
