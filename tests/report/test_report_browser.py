"""The page in a real browser: it works, it is readable, and hostile text does nothing.

Needs the packages playwright and axe-playwright-python, and a Chromium on the path, or named by the
variable CHROMIUM. The browser gets no network. Screenshots are kept in the folder that the variable
SCREENSHOTS names, if it is set.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ascribe import Recipe, recipe
from ascribe.estimators import BiPACEQ
from ascribe.reports import Picture, picture
from ascribe.steps.problems import printable
from tests.conftest import write_jsonl
from tests.report.injections import INJECTIONS
from tests.report.toys import Row, sound
from tests.sessions.test_formats import DATA

pytestmark = [pytest.mark.engine, pytest.mark.slow]

pytest.importorskip("vl_convert", reason="needs the extra report")
playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs a Chromium on the path", allow_module_level=True)

WIDTHS = (1280, 390)
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FIGURES = 6


@dataclass
class Seen:
    """What a page did that it should not."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # Tests may run as root, where Chromium's sandbox does not start.
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(chromium: Any, page: Path, width: int = 1280, scheme: str = "light") -> tuple[Any, Seen]:
    """The page with all its figures drawn, and what it did meanwhile and will do yet."""
    size = {"width": width, "height": 900}
    tab = chromium.new_context(viewport=size, color_scheme=scheme, offline=True).new_page()
    tab.set_default_timeout(60_000)
    seen = Seen()
    tab.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: seen.complaints.append(str(error)))
    tab.on("dialog", lambda dialog: (seen.complaints.append("a dialog"), dialog.dismiss()))
    tab.on("request", lambda request: seen.requests.append(request.url))
    tab.on("popup", lambda popup: seen.complaints.append("a window"))
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready=yes]")
    tab.evaluate("document.getElementById('fold').open = true")
    tab.wait_for_selector("html[data-drawn=yes]")
    return tab, seen


def assert_quiet(seen: Seen, page: Path) -> None:
    assert seen.complaints == []
    assert seen.requests == [page.as_uri()]


def told() -> list[Row]:
    """Sound rows, with what was seen and said, and one group in which nothing differs."""
    rows = [row | {"observation": f"You see {row['state']}.", "won": False} for row in sound()]
    for row in rows:
        row["response"] = f"<think>hm</think><action>{row['action']}</action>"
        row["won"] = bool(row["reward"])
        if row["group"] == "task 5":
            row["reward"], row["won"] = 0.0, False
    return rows


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One report with its figures and one without, which opens sooner."""
    folder = tmp_path_factory.mktemp("browser")
    first = write_jsonl(folder / "first.jsonl", told())
    second = write_jsonl(folder / "second.jsonl", told())
    made = picture([first, second], BiPACEQ(fingerprint="identity"), recipe("grpo"))
    made.write(folder / "drawn.html")
    replace(made, figures=()).write(folder / "report.html")
    return folder / "drawn.html", folder / "report.html"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that a report has, on few steps."""
    folder = tmp_path_factory.mktemp("small")
    rows = [row for row in told() if row["group"] in {"task 0", "task 5"}]
    files = [write_jsonl(folder / f"{name}.jsonl", rows) for name in ("first", "second")]
    by = BiPACEQ(fingerprint="identity")
    picture(files, by, recipe("grpo")).write(folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def drawn(reports: tuple[Path, Path]) -> Path:
    return reports[0]


@pytest.fixture(scope="module")
def report(reports: tuple[Path, Path]) -> Path:
    return reports[1]


def unfold(tab: Any) -> None:
    tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


def violations(tab: Any, checked: set[str] | None = None) -> list[Any]:
    """What axe finds, with everything unfolded."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs the package axe-playwright-python"
    )
    unfold(tab)
    # The policy of the page lets no script in, so the checker is evaluated by the browser's driver.
    tab.evaluate(axe.Axe().axe_script)
    found = tab.evaluate("axe.run({ resultTypes: ['violations'] })")
    assert checked is None or checked <= {each["id"] for each in found["passes"]}
    return [
        (each["id"], [node["target"] for node in each["nodes"]][:3]) for each in found["violations"]
    ]


def assert_fits(tab: Any) -> None:
    """At every width all figures are drawn, and nothing is wider than the screen."""
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.locator("figure svg.marks").count() == tab.locator("figure").count()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_without_a_word(chromium: Any, small: Path, scheme: str) -> None:
    tab, seen = opened(chromium, small, scheme=scheme)
    assert tab.locator("figure").count() == FIGURES
    tab.locator(".cell").nth(2).click()
    tab.locator("#detail h3").wait_for()
    if folder := os.environ.get("SCREENSHOTS"):
        tab.screenshot(path=Path(folder) / f"report_{scheme}.png", full_page=True)
    assert_fits(tab)
    assert violations(tab, {"color-contrast", "button-name", "select-name"}) == []
    assert_quiet(seen, small)


@pytest.mark.parametrize("name", ["textcraft", "trl", "verl"])
def test_the_examples_open_without_a_word(chromium: Any, name: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    picture([EXAMPLES / f"{name}.parquet"], recipe("gigpo"), recipe("grpo")).write(page)
    tab, seen = opened(chromium, page)
    assert tab.locator("figure").count() >= 4
    assert tab.locator("#sentence").inner_text().endswith(".")
    tab.locator(".cell").nth(2).click()
    tab.locator("#detail h3").wait_for()
    assert_fits(tab)
    assert_quiet(seen, page)


def test_the_arithmetic_of_a_step_is_told(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    tab.locator(".cell").first.click()
    said = tab.locator("#detail").inner_text()
    # Trajectory 0 goes left, as trajectory 2 does; both succeed, five steps later.
    assert "task 0/0, step 0" in said
    assert (
        "4 steps in this state; the 2 that did the same returned 0.815; all 4 returned 0.407"
        in (said)
    )
    assert "4 trajectories returned 0.5 on average; this one returned 1" in said
    assert "You see task 0, room 0." in said
    assert "<think>hm</think><action>left</action>" in said
    assert "3 other steps in this state." in said
    assert tab.locator(".cell.peer").count() == 4
    assert tab.locator(".join.on").count() == 1
    assert_quiet(seen, report)


def without_figures(rows: Path, *recipes: Recipe) -> Picture:
    return replace(picture([rows], *recipes), figures=())


def sentences(chromium: Any, folder: Path, rows: list[Row], by: Recipe) -> str:
    """What is told about the first step of a report on these rows."""
    page = folder / "report.html"
    without_figures(write_jsonl(folder / "rows.jsonl", rows), by).write(page)
    tab, seen = opened(chromium, page)
    tab.locator(".cell").first.click()
    said: str = tab.locator("#detail").inner_text()
    assert_quiet(seen, page)
    return said


def test_the_own_return_is_told_by_task(chromium: Any, tmp_path: Path) -> None:
    rows = told()
    rows[0]["state"] = "seen by no other"
    said = sentences(chromium, tmp_path, rows, recipe("sbc", preset="exact"))
    assert "own: 20 steps of this task returned 0.452 on average; this one returned 0.815" in said
    assert "step: no credit: no other step is in this state." in said
    said = sentences(chromium, tmp_path, told(), recipe("sbc", preset="exact"))
    assert "step: 4 steps in this state returned 0.407 on average; the 2 that did the same" in said


def test_a_return_without_peers_is_told_as_it_is(chromium: Any, tmp_path: Path) -> None:
    by = recipe("gigpo", preset="trinity")
    said = sentences(chromium, tmp_path, sound(groups=4, size=1), by)
    assert "episode: alone in its task: its return counts as it is; so +1." in said
    assert "divided" not in said


@pytest.mark.parametrize("reward", [-2.0, -0.123, -0.0001234])
def test_the_end_of_a_lane_is_read_in_full(chromium: Any, tmp_path: Path, reward: float) -> None:
    rows = [row | {"won": False, "reward": 0.0} for row in sound(groups=1)]
    for row in rows:
        if row["step"] == 4:
            cut = row["trajectory"].endswith("0")
            row |= {"reward": reward, "truncated": cut, "terminated": not cut}
    page = tmp_path / "report.html"
    without_figures(write_jsonl(tmp_path / "rows.jsonl", rows), recipe("grpo")).write(page)
    tab, _ = opened(chromium, page, 390)
    ends = tab.locator(".end").all()
    assert [end.inner_text().split(", ")[1] for end in ends] == ["cut", *3 * ["failure"]]
    assert all(end.evaluate("e => e.scrollWidth <= e.clientWidth") for end in ends)
    # No name of a lane runs into the next one.
    boxes = [name.bounding_box() for name in tab.locator(".lane-name").all()]
    assert all(a["y"] + a["height"] <= b["y"] for a, b in pairwise(boxes))


def test_the_figures(chromium: Any, drawn: Path) -> None:
    """They have their numbers, in a table and at the pointer, follow the theme and are printed."""
    tab, seen = opened(chromium, drawn)
    figure = tab.locator("figure", has_text="Where the signal is")
    figure.locator("summary").click()
    assert figure.locator("thead").inner_text().split() == ["term", "reason", "steps", "share"]
    signs = tab.locator("#comparison table").first
    assert signs.locator("thead").inner_text().split() == ["bipace_q", "grpo", "steps", "share"]
    assert signs.locator("tbody tr").count() == 9

    bar = tab.locator("figure", has_text="Where the signal is").locator(".mark-rect path").first
    bar.scroll_into_view_if_needed()
    bar.hover()
    assert "share: " in tab.locator("#tip").inner_text()
    assert "%" in tab.locator("#tip").inner_text()

    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(paper)
    tab.locator("#theme").click()
    assert tab.evaluate(paper) != light
    assert tab.locator("#theme").inner_text() == "Light"
    assert tab.locator("figure svg.marks").count() == FIGURES

    tab.emulate_media(media="print")
    assert not tab.locator("#theme").is_visible()
    assert tab.pdf(format="A4").startswith(b"%PDF")
    assert_quiet(seen, drawn)


def test_everything_can_be_reached_by_keyboard(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    reached = set()
    for _ in range(200):
        tab.keyboard.press("Tab")
        now = tab.evaluate("(e => e.id || e.className || e.tagName)(document.activeElement)")
        reached.add(now if isinstance(now, str) else "svg")
        if "cell" in str(now):
            break
    assert {"skip", "theme", "previous", "pick", "next", "SUMMARY"} <= reached
    steps = []
    for key in ("ArrowRight", "ArrowDown", "End", "ArrowRight", "Home", "ArrowUp", "ArrowUp"):
        tab.keyboard.press(key)
        steps.append(tab.locator("#detail h3").inner_text().split("/")[-1])
    names = ["0, step 1", "2, step 1", "2, step 4", "2, step 4", "2, step 0", "0, step 0"]
    assert steps == [*names, "0, step 0"]
    tab.locator("#next").focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#pick").input_value() == "1"
    assert_quiet(seen, report)


def test_the_theme_is_remembered(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    tab.locator("#theme").click()
    tab.reload()
    tab.wait_for_selector("html[data-ready=yes]")
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    assert tab.locator("#theme").inner_text() == "Light"
    assert seen.complaints == []


def test_a_browser_without_storage_shows_the_page(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    tab.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied'); }})"
    )
    tab.reload()
    tab.wait_for_selector("html[data-ready=yes]")
    tab.locator("#theme").click()
    assert tab.locator("#theme").inner_text() == "Light"
    assert seen.complaints == []


def test_steps_are_filtered(chromium: Any, report: Path) -> None:
    """Two batches of six tasks, of four trajectories of five steps; task 5 always fails."""
    tab, seen = opened(chromium, report)

    def found(**asked: str) -> str:
        tab.locator("#clear").evaluate("e => { e.disabled = false; e.click(); }")
        for name, value in asked.items():
            box = tab.locator(f"#{name}")
            box.fill(value) if name in ("search", "task") else box.select_option(value)
        text: str = tab.locator("#found").inner_text()
        return text

    assert found() == ""
    assert found(family="hard") == "120 steps in 6 groups"
    assert found(family="hard", outcome="success") == "40 steps in 4 groups"
    assert found(task="TASK 5") == "40 steps in 2 groups"
    assert tab.locator("#pick option").count() == 2
    assert found(iteration="2") == "120 steps in 6 groups"
    assert found(iteration="2", search="room 3") == "24 steps in 6 groups"
    assert tab.locator(".cell.hit").count() == 4
    assert tab.locator(".cell.missed").count() == 16
    assert found(sign="none") == "40 steps in 2 groups"
    assert found(sign="positive", outcome="failure") == "0 steps in 0 groups"
    tab.locator("#clear").click()
    assert tab.locator("#pick option").count() == 12
    assert tab.locator(".cell.missed").count() == 0
    assert_quiet(seen, report)


def test_a_link_leads_to_a_step(chromium: Any, report: Path) -> None:
    tab, _ = opened(chromium, report)
    tab.locator("#pick").select_option("7")
    tab.locator("#recipe").select_option("1")
    tab.locator(".cell").nth(8).click()
    title = tab.locator("#detail h3").inner_text()
    link = tab.locator("#detail .permalink").get_attribute("href")
    assert tab.evaluate("location.hash") == link
    other, seen = opened(chromium, report)
    other.goto(f"{report.as_uri()}{link}")
    other.reload()
    other.wait_for_selector("html[data-ready=yes]")
    assert other.locator("#detail h3").inner_text() == title
    assert other.locator("#recipe").input_value() == "1"
    for broken in ("#step/%ff/a/0/0", "#step/no/such/3/0", "#step/a", "#step////"):
        other.evaluate("hash => { location.hash = hash; }", broken)
    assert other.locator("#detail h3").inner_text() == title
    assert seen.complaints == []


def test_the_credit_of_both_recipes_is_shown(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    by_first = tab.locator(".cell .credit").all_inner_texts()
    tab.locator(".cell").first.click()
    assert "step: 4 steps in this state" in tab.locator("#detail").inner_text()
    tab.locator("#recipe").select_option("1")
    assert tab.locator(".cell .credit").all_inner_texts() != by_first
    said = tab.locator("#detail").inner_text()
    assert "peers in this state" not in said
    assert "Credit by bipace_q" in said
    assert_quiet(seen, report)


def test_the_largest_changes_lead_to_their_steps(chromium: Any, tmp_path: Path) -> None:
    rows = told()
    for row in rows:
        if row["step"] == 0 and row["trajectory"][-1] == "0":
            row["reward"] = -3.0
    page = tmp_path / "report.html"
    rows_file = write_jsonl(tmp_path / "rows.jsonl", rows)
    without_figures(rows_file, recipe("gigpo", weight=3.0), recipe("grpo")).write(page)
    tab, seen = opened(chromium, page)
    tab.get_by_text("Largest changes of sign").click()
    changes = tab.locator("#comparison table", has_text="trajectory")
    assert changes.locator("th").all_inner_texts()[-3:-1] == ["gigpo", "grpo"]
    row = changes.locator("tbody tr").first
    _, trajectory, step, *_ = row.locator("td").all_inner_texts()
    row.locator("a").click()
    assert tab.locator("#detail h3").inner_text().startswith(f"{trajectory}, step {step}")
    assert_quiet(seen, page)


def test_two_trajectories_are_shown_side_by_side(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    ticks = tab.locator(".lane-name input")
    ticks.nth(0).check()
    assert "Tick a second trajectory" in tab.locator("#pair").inner_text()
    ticks.nth(3).check()
    assert tab.locator("#pair tr.shared").count() == 5
    assert tab.locator("#pair tr.parted").count() == 5
    said = tab.locator("#pair tr.parted").first.locator("code").all_inner_texts()
    assert said == ["left", "right"]
    ticks.nth(1).check()
    assert [tick.is_checked() for tick in ticks.all()] == [False, True, False, True]
    tab.locator("#next").click()
    assert tab.locator("#pair").inner_text() == ""
    assert_quiet(seen, report)


def test_a_decision_opens_two_sessions_where_they_part(chromium: Any, tmp_path: Path) -> None:
    """Eight attempts at each task; those that take the left doors succeed."""
    page, rows = tmp_path / "report.html", sound(size=8)
    for row in rows:  # the first door is the same for all
        row["action"] = "in" if row["step"] == 0 else row["action"]
        row["valid"] = row["trajectory"] != "task 0/1" or row["step"] != 2
    made = without_figures(write_jsonl(tmp_path / "rows.jsonl", rows), recipe("gigpo"))
    made.write(page)
    tab, seen = opened(chromium, page)
    assert tab.locator("#sentence").inner_text() == made.decisions.sentence.replace("`", "")
    line = tab.locator("#decision-table tbody tr", has_text="task 0, room 1")
    task, better, worse, *numbers, sure = line.locator("td").all_inner_texts()
    assert task.startswith("task 0")
    assert (better, worse) == ("left\nwon 100 %", "right\nwon 0 %")
    assert numbers[0] == "+100 points"
    assert numbers[2] == "4 and 4"
    assert sure == "certain"
    line.locator("button").click()
    opened_ = tab.locator("#decision-table .opened")
    assert "Steps before: 1, 1 the same in both" in opened_.inner_text()
    parted = opened_.locator("table").last.locator("tr.parted")
    assert parted.first.locator("code").all_inner_texts() == ["left", "right"]
    assert [each.split("\n")[0] for each in parted.first.locator("td").all_inner_texts()] == [
        *("step 1 +1.9 left", "step 1 −1.9 right")
    ]
    assert violations(tab) == []

    # Trajectories: sorted by what is clicked, and opened in the browser.
    table = tab.locator("#trajectory-table")
    assert table.locator("tbody tr").count() == 15
    table.get_by_role("button", name="errors").click()
    assert table.locator("th[aria-sort=descending]").inner_text() == "errors ↓"
    first = table.locator("tbody tr").first.locator("td").all_inner_texts()
    assert first[:5] == ["1", "task 0", "return 0", "5", "1"]
    assert first[5].startswith("worse: ")
    table.locator("tbody a").first.click()
    assert tab.locator("#detail h3").inner_text() == "task 0/1, step 0"
    assert_quiet(seen, page)


def test_sub_agents_and_rewritten_contexts_are_shown(chromium: Any, tmp_path: Path) -> None:
    def call(name: str, goal: str) -> dict[str, Any]:
        function = {"name": name, "arguments": json.dumps({"task": goal})}
        return {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}

    def record(number: int, *messages: dict[str, Any], **more: str) -> dict[str, Any]:
        named = {"session_id": f"s{number}", "task": "repair", "reward": number % 2}
        return {**named, "messages": list(messages), **more}

    system, goal = {"role": "system", "content": "You repair a shop."}, "Find the broken function."
    user, found = {"role": "user", "content": "Repair it."}, "It is in billing.py, line 42."
    summary = {"role": "user", "content": "Summary of what was done: billing.py is broken."}
    done = {"role": "assistant", "content": "Repaired."}
    lines = []
    for number in range(8):
        result = {"role": "tool", "tool_call_id": "1", "content": found}
        lines += [
            record(number, system, user, call("delegate", goal), result, call("edit", "line 42")),
            record(
                number,
                *({"role": "system", "content": "You search."}, {"role": "user", "content": goal}),
                *(call("grep", "def"), {"role": "tool", "tool_call_id": "1", "content": "2 hits"}),
                {"role": "assistant", "content": found},
                agent="searcher",
            ),
            record(number, system, user, summary, done),
        ]
    page = tmp_path / "report.html"
    without_figures(write_jsonl(tmp_path / "runs.jsonl", lines), recipe("gigpo")).write(page)
    tab, seen = opened(chromium, page)
    lane = tab.locator(".lane").first
    heights = [cell.bounding_box()["y"] for cell in lane.locator(".cell").all()]
    assert [height - heights[0] for height in heights] == [0, 14, 14, 0, 0]
    classes = [cell.get_attribute("class") or "" for cell in lane.locator(".cell").all()]
    assert ["rewritten" in each for each in classes] == [False, False, False, True, False]
    assert 'delegate(task="Find' in lane.locator(".cell").first.inner_text()
    lane.locator(".cell").nth(1).click()
    assert ", step 1, by agent searcher from step 0 on" in tab.locator("#detail h3").inner_text()
    tab.get_by_text("The whole conversation, 5 steps").click()
    tab.get_by_text("The context was rewritten here.").wait_for()  # there is one
    assert_quiet(seen, page)


def test_cells_can_be_wider_and_narrower(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    cell = tab.locator(".cell").first
    assert "left" in cell.inner_text(), "five steps leave room for the action"
    for _ in range(4):
        if tab.locator("#narrower").is_enabled():
            tab.locator("#narrower").click()
    assert cell.inner_text() == ""
    assert cell.bounding_box()["width"] < 20
    cell.hover()
    tip = tab.locator("#tip")
    assert "task 0/0, step 0" in tip.inner_text()
    assert "Action: left" in tip.inner_text()
    tab.mouse.move(2, 2)
    assert not tip.is_visible()
    assert_quiet(seen, report)


def test_the_navigation_stays_in_sight(chromium: Any, report: Path) -> None:
    tab, _ = opened(chromium, report)
    tab.locator("nav a", has_text="Training").click()
    tab.wait_for_timeout(800)
    box = tab.locator("nav").bounding_box()
    assert 0 <= box["y"] < 10
    assert tab.locator("#training h2").bounding_box()["y"] > box["y"] + box["height"]


# Hostile text.


def planted() -> list[Row]:
    """Every injection as a state, an action, a task, a family, a trajectory, seen and said."""
    return [
        {
            "group": f"{text}{number}",
            "trajectory": f"{text}{number}/{run}",
            "step": step,
            "state": text,
            "action": f"{text}{run}",
            "reward": float(run == 0 and step == 1),
            "family": INJECTIONS[number % 20 * 17 % len(INJECTIONS)],
            "observation": f"{text} seen",
            "response": f"{text} said",
            "prompt": json.dumps([{"role": f"{text} role", "content": f"{text} asked"}]),
        }
        for number, text in enumerate(INJECTIONS)
        for run in range(2)
        for step in range(2)
    ]


FILE_NAMES = [
    name.replace("/", "∕") for name in INJECTIONS if "\x00" not in name and len(name.encode()) < 200
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rollouts full of injections, in three files of hostile names, one of them no Unicode."""
    folder = tmp_path_factory.mktemp("hostile")
    rows = planted()
    names = [f"{FILE_NAMES[0]}.jsonl", f"{FILE_NAMES[170]}.jsonl", "\udcff<b>bytes\udcfe.jsonl"]
    third = len(INJECTIONS) // 3 * 4
    parts = (rows[:third], rows[third : 2 * third], rows[2 * third :])
    files = [write_jsonl(folder / name, part) for name, part in zip(names, parts, strict=True)]
    picture(files, recipe("gigpo"), recipe("grpo")).write(folder / "report.html")
    return folder / "report.html"


def assert_untouched(tab: Any) -> None:
    assert tab.evaluate("window.hacked") is None
    assert tab.title() == "Ascribe: what decided the outcome"
    assert tab.evaluate("document.querySelectorAll('script').length") == 3
    # The charts bring a form of their own each, for controls that none of them has.
    strange = "form:not(.vega-bindings), .vega-bindings *, iframe, object, embed, link, base, img"
    strange += ", video, audio, dialog, marquee, template, body style"
    assert tab.locator(strange).count() == 0
    assert tab.evaluate("document.querySelectorAll('meta').length") == 4
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert not [name for name in tab.evaluate(handlers) if name.startswith("on")]
    assert tab.evaluate("({}).polluted") is None


def test_there_are_enough_injections() -> None:
    assert len(INJECTIONS) >= 200
    assert len(FILE_NAMES) >= 200


def test_no_injection_does_anything(chromium: Any, hostile: Path) -> None:
    tab, seen = opened(chromium, hostile)
    assert_shown_as_written(tab)
    assert tab.locator("#pick option").count() == len(INJECTIONS)
    # One after another: show the group, read its first step, look at what is shown.
    shown = tab.evaluate(
        """(groups) => Array.from({ length: groups }, (_, number) => {
          const pick = document.getElementById("pick");
          pick.value = String(number);
          pick.dispatchEvent(new Event("change"));
          for (const box of document.querySelectorAll(".lane-name input")) box.click();
          const cell = document.querySelector(".cell");
          cell.dispatchEvent(new MouseEvent("mousemove", {bubbles: true}));
          cell.focus();
          return document.querySelectorAll("#detail pre").length;
        })""",
        len(INJECTIONS),
    )
    assert min(shown) >= 4
    tab.evaluate(
        "document.querySelectorAll('#decision-table button').forEach((each) => each.click())"
    )
    assert tab.locator("#decision-table .opened").count() == 100
    unfold(tab)
    assert tab.locator("figure svg.marks").count() == tab.locator("figure").count()
    assert_untouched(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1280
    assert_quiet(seen, hostile)


def assert_shown_as_written(tab: Any) -> None:
    shown = tab.evaluate("JSON.parse(document.getElementById('data').textContent).browser.texts")
    plain = [text for text in INJECTIONS if printable(text) == text and len(text) < 1000]
    assert set(plain) <= set(shown)
    tab.evaluate("document.querySelector('.cell').focus()")
    state = tab.locator("#detail pre").first.evaluate("e => e.textContent")
    assert state in shown


def test_hostile_names_of_files_do_nothing(chromium: Any, tmp_path: Path) -> None:
    """All names at once, in one page: each is a batch."""
    files = []
    for number, name in enumerate(FILE_NAMES):
        rows = sound(groups=1, size=2, length=1)
        files.append(write_jsonl(tmp_path / f"{number}{name}.jsonl", rows))
    picture(files, recipe("grpo")).write(tmp_path / "report.html")
    tab, seen = opened(chromium, tmp_path / "report.html")
    unfold(tab)
    assert tab.locator("#pick option").count() == len(FILE_NAMES)
    assert_untouched(tab)
    assert_quiet(seen, tmp_path / "report.html")


# Conversations.


def test_families_named_like_properties_of_objects_are_charted(
    chromium: Any, tmp_path: Path
) -> None:
    names = ("constructor", "__proto__", "toString", "hasOwnProperty", "look")
    rows = [row | {"family": names[int(row["group"][-1]) % 5]} for row in sound()]
    page = tmp_path / "report.html"
    picture([write_jsonl(tmp_path / "runs.jsonl", rows)], recipe("grpo")).write(page)
    tab, seen = opened(chromium, page)
    chart = tab.locator("figure", has_text="Success by family")
    quoted = [f"“{name}”" for name in names[:-1]]
    labels = chart.locator(".role-axis-label text").all_text_contents()
    assert {*quoted, "look", "all"} <= set(labels)
    assert chart.locator(".mark-rect path").count() == len(names) + 1
    assert_quiet(seen, page)


HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four attempts with tool calls; one result is hostile, and as long as a file."""
    folder = tmp_path_factory.mktemp("conversations")
    lines = (DATA / "openai.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["messages"][3]["content"] = HOSTILE + "x" * 600
    first["messages"][2]["tool_calls"][0]["function"]["name"] = HOSTILE
    path = folder / "runs.jsonl"
    path.write_text("\n".join([json.dumps(first), *lines[1:]]))
    without_figures(path, recipe("gigpo")).write(folder / "report.html")
    return folder / "report.html"


def test_messages_are_folded_and_shown_as_text(chromium: Any, conversations: Path) -> None:
    tab, seen = opened(chromium, conversations)
    tab.locator(".cell[aria-label*='line 1, step 1']").click()
    tool, assistant = tab.locator(".messages > .message").all()
    assert tool.get_attribute("open") is None, "a long result is folded"
    assert assistant.get_attribute("open") is not None
    assert "look" in assistant.inner_text()
    tool.locator("summary").click()
    assert HOSTILE in tool.locator("pre").inner_text()
    tab.get_by_text("The whole conversation, 4 steps").click()
    tab.locator(".messages h4").nth(4).wait_for()
    assert tab.locator(".messages h4").all_inner_texts()[1:] == [
        f"Step {step}, credit {cell.splitlines()[0]}"
        for step, cell in enumerate(
            tab.locator(".lane").filter(has_text="line 1").locator(".cell").all_inner_texts()
        )
    ]
    assert tab.locator("img").count() == 0
    if folder := os.environ.get("SCREENSHOTS"):
        tab.locator("#browser").screenshot(path=Path(folder) / "conversations.png")
    assert_fits(tab)
    tab.locator("#search").fill("look")
    assert violations(tab) == []
    assert_quiet(seen, conversations)


def test_steps_are_found_by_text_result_and_tool(chromium: Any, conversations: Path) -> None:
    tab, seen = opened(chromium, conversations)
    for asked, found in {"hosts": 2, "LOOK": 11, "no such text": 0, "onerror": 2, "": 0}.items():
        tab.locator("#search").fill(asked)
        assert tab.locator(".cell.hit").count() == found, asked
        assert tab.locator("#next-hit").is_disabled() == (found == 0)
    tab.locator("#search").fill("readme.txt")
    tab.locator("#search").press("Enter")
    assert tab.locator("#found").inner_text() == f"1 of {tab.locator('.cell.hit').count()} steps"
    tab.locator("#next-hit").click()
    assert tab.locator("#found").inner_text().startswith("2 of ")
    assert "readme.txt" in tab.locator("#detail").inner_text()
    assert_quiet(seen, conversations)
