"""The page in a real browser: it works, it is readable, and hostile text does nothing.

Needs the packages playwright and axe-playwright-python, and a Chromium on the path, or named by the
variable CHROMIUM. The browser gets no network. Screenshots are kept in the folder that the variable
SCREENSHOTS names, if it is set.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ascribe import Recipe, recipe
from ascribe.engines.metrics import HELD_OUT, NAME
from ascribe.estimators import BiPACEQ
from ascribe.reports import Picture, picture, read_run, write_run
from ascribe.steps.problems import printable
from tests.conftest import write_jsonl
from tests.report.injections import INJECTIONS
from tests.report.toys import Row, sound

pytestmark = [pytest.mark.engine, pytest.mark.slow]

playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs a Chromium on the path", allow_module_level=True)

WIDTHS = (1400, 400)
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FIGURES = 4


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


def opened(chromium: Any, page: Path, width: int = 1400, scheme: str = "light") -> tuple[Any, Seen]:
    """The page with everything that it shows by itself, and what it did and will do yet."""
    size = {"width": width, "height": 900}
    tab = chromium.new_context(viewport=size, color_scheme=scheme, offline=True).new_page()
    tab.set_default_timeout(5_000)
    seen = Seen()
    tab.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: seen.complaints.append(str(error)))
    tab.on("dialog", lambda dialog: (seen.complaints.append("a dialog"), dialog.dismiss()))
    tab.on("request", lambda request: seen.requests.append(request.url))
    tab.on("popup", lambda popup: seen.complaints.append("a window"))
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-sessions=yes]")
    return tab, seen


def read(tab: Any, session: str, step: int | None = None) -> Any:
    """Open a session, and return what is read there."""
    link = f"#session/{quote(session, safe='')}" + ("" if step is None else f"/{step}")
    tab.evaluate("hash => { location.hash = hash; }", link)
    tab.locator("#reader h2", has_text=session).wait_for()
    return tab.locator("#reader")


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


def written(
    folder: Path, rows: list[Row], by: Recipe, compare: Recipe | None = None
) -> tuple[Path, Picture]:
    """The page on some rows."""
    made = picture([write_jsonl(folder / "rows.jsonl", rows)], by, compare=compare)
    made.write(folder / "report.html")
    return folder / "report.html", made


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    first = write_jsonl(folder / "first.jsonl", told())
    second = write_jsonl(folder / "second.jsonl", told())
    made = picture([first, second], BiPACEQ(fingerprint="identity"), compare=recipe("grpo"))
    made.write(folder / "report.html")
    return folder / "report.html"


def unfold(tab: Any) -> None:
    tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    tab.wait_for_timeout(100)


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
    """Nothing is wider than the screen."""
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_without_a_word(chromium: Any, report: Path, scheme: str) -> None:
    tab, seen = opened(chromium, report, scheme=scheme)
    unfold(tab)
    assert tab.locator("figure").count() == FIGURES
    assert tab.locator("figure .bars, figure svg").count() == FIGURES
    if folder := os.environ.get("SCREENSHOTS"):
        tab.screenshot(path=Path(folder) / f"report_{scheme}.png", full_page=True)
    assert_fits(tab)
    assert violations(tab, {"color-contrast", "button-name", "select-name", "label"}) == []
    tab.locator("#session-list a").nth(1).click()
    tab.locator(".step").first.wait_for()
    assert_fits(tab)
    assert violations(tab, {"color-contrast", "button-name"}) == []
    assert_quiet(seen, report)


@pytest.mark.parametrize("name", ["textcraft", "trl", "verl"])
def test_the_examples_open_without_a_word(chromium: Any, name: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    picture([EXAMPLES / f"{name}.parquet"], recipe("gigpo"), compare=recipe("grpo")).write(page)
    tab, seen = opened(chromium, page)
    unfold(tab)
    assert tab.locator("figure").count() >= 1
    assert tab.locator("#sentence").inner_text().endswith(".")
    assert_fits(tab)
    tab.locator("#session-list a").first.click()
    tab.locator(".step").first.wait_for()
    assert_fits(tab)
    assert_quiet(seen, page)


# What happened.


def attempts(tasks: int, versions: int, size: int = 2) -> list[Row]:
    """Conversations at tasks, of which later versions win more."""
    rows: list[Row] = []
    for task in range(tasks):
        for version in range(versions):
            for run in range(size):
                function = {"name": "look", "arguments": json.dumps({"at": run, "task": task})}
                call = {"id": "c1", "type": "function", "function": function}
                messages = [
                    {"role": "system", "content": "You look after things. " * 40},
                    {"role": "user", "content": f"Look at {task}."},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c1", "content": "seen " * 500},
                    {"role": "assistant", "content": f"Done with {task}."},
                ]
                won = int((task + run) % (versions + 1) < version + 1)
                named = {"task": f"task {task}", "version": f"v{version}", "reward": won}
                name = f"{task}-{version}-{run}"
                rows.append({**named, "session_id": name, "messages": messages})
    return rows


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Picture]:
    """A page on forty tasks and three versions, with two attempts each."""
    folder = tmp_path_factory.mktemp("agents")
    return written(folder, attempts(40, 3), recipe("sbc"))


def test_the_first_screen_says_what_happened(chromium: Any, agents: tuple[Path, Picture]) -> None:
    page, made = agents
    tab, seen = opened(chromium, page)
    happened = made.answers["happened"]
    assert tab.locator("#sentence").inner_text() == happened["sentence"]
    lines = tab.locator("#versions .listing").first.locator("tbody tr").all_inner_texts()
    assert len(lines) == 3
    for line, version in zip(lines, happened["versions"], strict=True):
        assert version["name"] in line
        assert f"{round(100 * version['share'])} %" in line
        assert f"\t{version['sessions']}\t" in line
    boxes = tab.locator("#grid .box")
    assert boxes.count() == 120
    cells = [cell for row in happened["grid"]["tasks"] for cell in row["cells"]]
    shown = {(box.get_attribute("data-tip"), box.inner_text()) for box in boxes.all()}
    names = [
        f"{row['task']}, {version}"
        for row in happened["grid"]["tasks"]
        for version in happened["grid"]["versions"]
    ]
    assert shown == {(n, f"{won}/{of}") for n, (won, of) in zip(names, cells, strict=True)}
    assert boxes.first.get_attribute("aria-label").startswith("Task task")
    # What separates begins on the first screen.
    assert tab.locator("#separates h2").bounding_box()["y"] < 800
    assert_quiet(seen, page)


def test_a_box_lists_its_sessions(chromium: Any, agents: tuple[Path, Picture]) -> None:
    page, _ = agents
    tab, seen = opened(chromium, page)
    tab.locator("#grid input").fill("task 17")
    assert tab.locator("#grid .box").count() == 3
    tab.get_by_role("button", name="Task task 17, v1:").click()
    listed = tab.locator("#cell tbody tr")
    listed.first.wait_for()
    assert [each.split("\t")[0] for each in listed.all_inner_texts()] == [*("17-1-0", "17-1-1")]
    tab.locator("#grid .task").click()
    tab.locator("#cell tbody tr").nth(5).wait_for()
    assert tab.locator("#cell tbody tr").count() == 6
    tab.locator("#cell").get_by_role("button", name="Close").click()
    assert tab.locator("#cell").inner_text() == ""
    assert_quiet(seen, page)


def test_the_grid_is_walked_by_arrow_keys(chromium: Any, agents: tuple[Path, Picture]) -> None:
    page, _ = agents
    tab, seen = opened(chromium, page)
    tab.locator("#grid input").focus()
    tab.keyboard.press("Tab")
    focus = "document.activeElement.dataset.tip || document.activeElement.title"
    first = tab.evaluate(focus)
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(focus) != first
    tab.keyboard.press("ArrowDown")
    assert ", v1" in tab.evaluate(focus)
    tab.keyboard.press("Enter")
    tab.locator("#cell tbody tr").first.wait_for()
    tab.keyboard.press("Tab")
    assert tab.evaluate("Boolean(document.activeElement.closest('.field')) === false")
    assert_quiet(seen, page)


def test_many_tasks_and_versions_are_shown_bit_by_bit(chromium: Any, tmp_path: Path) -> None:
    rows = [
        {
            "group": f"task {task}",
            "trajectory": f"{task}/{version}",
            "version": f"version {version}",
        }
        | {"step": 0, "state": "s", "action": "ab"[version % 2]}
        | {"reward": float((task * 7 + version) % 3 == 0)}
        for task in range(300)
        for version in range(20)
    ]
    page, _ = written(tmp_path, rows, recipe("grpo"))
    tab, seen = opened(chromium, page)
    shown = tab.locator("#grid .box").count()
    assert shown == 1200
    tab.get_by_role("button", name="Show 240 more of 300 tasks").click()
    assert tab.locator("#grid .box").count() == 6000
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1400
    assert tab.locator("#grid .field").bounding_box()["height"] <= 320
    tab.locator("#grid .field").evaluate("e => { e.scrollTop = 2000; }")
    head = tab.locator("#grid thead th").first.bounding_box()["y"]
    assert head >= tab.locator("#grid .field").bounding_box()["y"] - 30
    assert tab.locator("#session-list tbody tr").count() == 25
    assert_fits(tab)
    assert_quiet(seen, page)


# What separates won from lost.


def test_a_finding_opens_two_sessions_where_they_part(chromium: Any, tmp_path: Path) -> None:
    """Eight attempts at each task; those that take the left doors succeed."""
    rows = sound(size=8)
    for row in rows:  # the first door is the same for all
        row["action"] = "in" if row["step"] == 0 else row["action"]
    page, made = written(tmp_path, rows, recipe("gigpo"))
    tab, seen = opened(chromium, page)
    separates = made.answers["separates"]
    assert separates["sentence"].replace("`", "") in tab.locator("#verdict").inner_text()
    first = tab.locator(".finding").first
    row = separates["rows"][0]
    assert row["certain"]
    said = first.inner_text()
    assert row["sentence"].replace("`", "") in said
    assert row["sure"].replace("`", "") in said
    for side in (row["with"], row["without"]):
        assert f"{round(100 * side['share'])} %" in said
        assert f"({side['sessions']} sessions)" in said
    assert violations(tab) == []
    first.get_by_role("link", name="Read two sessions").click()
    tab.get_by_text("Here they part.").wait_for()
    heads = tab.locator(".heads a").all_inner_texts()
    assert heads == [session for session, _ in row["pair"]]
    steps = tab.locator(".pair .row").nth(1).locator(".step h3").all_inner_texts()
    assert [step.split("\n")[0].split(" credit")[0] for step in steps] == [
        f"Step {step}" for _, step in row["pair"]
    ]
    assert violations(tab) == []
    assert_fits(tab)
    tab.keyboard.press("Escape")
    assert first.is_visible()
    assert tab.evaluate("document.activeElement.textContent").startswith("Read two sessions")
    assert_quiet(seen, page)


def test_the_tasks_of_a_finding_list_their_sessions(chromium: Any, tmp_path: Path) -> None:
    page, made = written(tmp_path, sound(size=8), recipe("gigpo"))
    row = made.answers["separates"]["rows"][0]
    tab, seen = opened(chromium, page)
    first = tab.locator(".finding").first
    first.locator("summary").click()
    first.get_by_role("button", name=row["tasks"][0], exact=True).click()
    tab.locator("#cell tbody tr").nth(7).wait_for()
    assert row["tasks"][0] in tab.locator("#cell h3").inner_text()
    assert_quiet(seen, page)


# One session.


def test_a_session_is_read_as_people_know_it(chromium: Any, agents: tuple[Path, Picture]) -> None:
    page, _ = agents
    tab, seen = opened(chromium, page)
    reader = read(tab, "task 17/17-1-0")
    assert "task task 17" in reader.inner_text()
    roles = reader.locator(".role").all_inner_texts()
    assert roles == ["system", "user", "agent", "result of look", "agent"]
    # The system prompt and a long result are folded, each with its size.
    system = reader.locator(".message.system")
    assert "The system prompt, 920 characters" in system.inner_text()
    system.locator("summary").click()
    assert system.locator("pre").inner_text() == ("You look after things. " * 40)
    assert reader.locator("pre.call").inner_text() == "look(at=0, task=17)"
    result = reader.locator(".message.tool")
    more = result.get_by_role("button", name="Show all of the result of look")
    assert result.locator("pre").bounding_box()["height"] < 150
    more.click()
    assert more.get_attribute("aria-expanded") == "true"
    left = "(500 more characters were left out of this page)"
    assert result.locator("pre").inner_text() == ("seen " * 400) + "… " + left
    assert violations(tab) == []
    assert_fits(tab)
    assert_quiet(seen, page)


def test_calls_are_shown_whole(chromium: Any, tmp_path: Path) -> None:
    rows = attempts(1, 2)
    code = "def f():\n    return 'x'\n" * 300
    arguments = {"path": "/etc", "code": code, "deep": {"a": [1, None]}, "empty": ""}
    for row in rows:
        function = row["messages"][2]["tool_calls"][0]["function"]
        function["arguments"] = json.dumps(arguments)
    page, _ = written(tmp_path, rows, recipe("sbc"))
    tab, seen = opened(chromium, page)
    call = read(tab, "task 0/0-0-0").locator("pre.call").inner_text()
    assert call.startswith('look(\n  path="/etc",\n  code=\n    def f():\n')
    assert call.count("return 'x'") == 300
    assert call.endswith('deep={"a":[1,null]},\n  empty=""\n)')
    assert_quiet(seen, page)


def test_costliest_and_best_step_are_marked_with_the_reason(chromium: Any, tmp_path: Path) -> None:
    page, made = written(tmp_path, told(), recipe("gigpo"))
    tab, seen = opened(chromium, page)
    row = next(each for each in made.answers["sessions"] if each["costliest"] and not each["won"])
    reader = read(tab, row["session"])
    assert row["costliest"]["credit"] <= row["best"]["credit"] < 0
    for name, words in {"costliest": "costliest", "best": "least harmful"}.items():
        why = row[name]["why"].replace("`", "")
        step = reader.locator(f".step .mark-{name}")
        assert step.inner_text() == f"The {words} step: {why}."
        reader.get_by_role("button", name=f"The {words} step: {row[name]['step']}").click()
        assert tab.evaluate("location.hash").endswith(f"/{row[name]['step']}")
        assert reader.locator(".step.current").get_attribute("aria-label") == (
            f"Step {row[name]['step']}"
        )
    ticks = reader.locator(".beat").all()
    assert len(ticks) == row["steps"]
    labels = [tick.get_attribute("aria-label") for tick in ticks]
    assert "the costliest step" in labels[row["costliest"]["step"]]
    assert_quiet(seen, page)


def test_a_session_is_walked_by_keyboard(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    tab.locator("#session-list a").first.focus()
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    tab.keyboard.press("k")
    second = tab.evaluate("document.activeElement.title")
    tab.keyboard.press("Enter")
    tab.locator("#reader .step.current").wait_for()
    assert tab.locator("#reader h2").inner_text() == second
    seen_steps = []
    for key in ("j", "j", "k", "ArrowRight", "ArrowLeft", "k", "k"):
        tab.keyboard.press(key)
        seen_steps.append(tab.evaluate("location.hash").rpartition("/")[2])
    assert seen_steps == ["1", "2", "1", "2", "1", "0", "0"]
    # The strip is one stop of the Tab key, and the arrow keys walk along it.
    tab.locator(".beat.current").focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("End")
    assert tab.evaluate("location.hash").endswith("/4")
    tab.keyboard.press("Escape")
    assert not tab.locator("#reader").is_visible()
    assert tab.evaluate("document.activeElement.title") == second
    assert_quiet(seen, report)


def test_keyboard_alone_reaches_everything(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    reached = set()
    for _ in range(80):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("(e => e.id || e.className || e.tagName)(document.activeElement)"))
        if "made" in reached:
            break
    assert {"skip", "theme", "name", "outcome", "search", "find", "SUMMARY"} <= reached
    assert any(str(each).startswith("box") for each in reached)
    assert_quiet(seen, report)


def test_a_link_leads_to_a_step_and_survives_a_reload(chromium: Any, report: Path) -> None:
    tab, _ = opened(chromium, report)
    tab.locator("#session-list a").nth(3).click()
    tab.locator(".beat").nth(2).click()
    link = tab.evaluate("location.hash")
    title = tab.locator("#reader h2").inner_text()
    assert link == f"#session/{quote(title, safe='')}/2"
    other, seen = opened(chromium, report)
    other.goto(f"{report.as_uri()}{link}")
    other.reload()
    other.locator(".step.current").wait_for()
    assert other.locator("#reader h2").inner_text() == title
    assert other.locator(".step.current").get_attribute("aria-label") == "Step 2"
    for broken in ("#session/%ff", "#session/no such/3", "#session/", "#pair/a", "#pair/a/b/c/d"):
        other.evaluate("hash => { location.hash = hash; }", broken)
        other.wait_for_timeout(60)
    assert "does not hold the conversation of" in other.locator("#reader").inner_text()
    other.keyboard.press("Escape")
    assert other.locator("#sentence").is_visible()
    assert seen.complaints == []


def test_the_browsers_back_button_leaves_a_session(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    tab.locator("#session-list a").nth(5).click()
    tab.locator(".step").first.wait_for()
    tab.go_back()
    tab.locator("#sentence").wait_for()
    assert not tab.locator("#reader").is_visible()
    tab.locator("#session-list a").nth(5).click()
    tab.locator(".step").first.wait_for()
    tab.locator("nav a", has_text="What separates").click()
    assert tab.locator("#separates").is_visible()
    assert not tab.locator("#reader").is_visible()
    assert seen.complaints == []


def test_the_same_moment_in_another_attempt(chromium: Any, tmp_path: Path) -> None:
    rows = sound(groups=1)
    late = [row for row in rows if row["trajectory"] == "task 0/3"]
    first = late[0] | {"state": "before", "action": "wait"}
    for row in late:
        row["step"] += 1
    page, _ = written(tmp_path, [*rows, first], recipe("gigpo"))
    tab, seen = opened(chromium, page)
    reader = read(tab, "task 0/0", 2)
    reader.locator(".others button", has_text="task 0/3").click()
    tab.locator("#reader h2", has_text="task 0/3").wait_for()
    assert tab.evaluate("location.hash") == "#session/task%200%2F3/3"
    tab.locator(".others li", has_text="task 0/1").get_by_text("side by side").click()
    tab.locator(".heads").wait_for()
    assert tab.evaluate("location.hash") == "#pair/task%200%2F3/3/task%200%2F1/2"
    assert_quiet(seen, page)


def test_the_arithmetic_of_a_step_is_told(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    tab.locator("#session-list a").first.click()
    tab.locator(".how").first.click()
    tab.locator(".how p").first.wait_for()
    said = tab.locator(".how").first.inner_text()
    # Trajectory 0 goes left, as trajectory 2 does; both succeed, five steps later.
    assert (
        "4 steps in this state; the 2 that did the same returned 0.815; all 4 returned 0.407"
        in said
    )
    assert "4 trajectories returned 0.5 on average; this one returned 1" in said
    assert "By grpo:" in said
    credit = tab.locator(".chip").first.inner_text()
    tab.locator("#recipe").select_option("1")
    assert tab.locator(".chip").first.inner_text() != credit
    said = tab.locator(".step").first.inner_text()
    assert "You see task 0, room 0." in said
    assert "<think>hm</think><action>left</action>" in said
    assert_quiet(seen, report)


def sentences(chromium: Any, folder: Path, rows: list[Row], by: Recipe) -> str:
    """What is told about the first step of a report on these rows."""
    page, _ = written(folder, rows, by)
    tab, seen = opened(chromium, page)
    tab.locator("#session-list a").first.click()
    tab.locator(".how").first.click()
    tab.locator(".how p").first.wait_for()
    said: str = tab.locator(".how").first.inner_text()
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
    page, _ = written(tmp_path, lines, recipe("gigpo"))
    tab, seen = opened(chromium, page)
    tab.locator("#session-list a").first.click()
    steps = tab.locator(".step")
    steps.first.wait_for()
    lefts = [step.bounding_box()["x"] for step in steps.all()]
    assert [left - lefts[0] for left in lefts] == [0, 18, 18, 0, 0]
    assert 'delegate(task="Find' in steps.first.inner_text()
    assert "by searcher" in steps.nth(1).locator("h3").inner_text()
    assert "The context was rewritten here." in steps.nth(3).inner_text()
    assert tab.get_by_text("The context was rewritten here.").count() == 1
    assert_quiet(seen, page)


# Two versions, and what is earned.


def test_two_versions_are_compared_task_by_task(chromium: Any, tmp_path: Path) -> None:
    name = "<img src=x onerror=window.hacked=1>"
    rows = [row | {"group": f"{row['group']} {name}"} for row in sound(size=8)]
    for row in rows:
        row["trajectory"] = f"{row['group']}/{row['trajectory'][-1]}"
    worse = [row | {"action": "right", "reward": 0.0} for row in rows]
    old, new = (write_jsonl(tmp_path / f"{n}.jsonl", part) for n, part in enumerate((rows, worse)))
    made = picture(new, against=old)
    page = tmp_path / "report.html"
    made.write(page)
    changed = made.answers["changed"]
    assert changed is not None
    tab, seen = opened(chromium, page)
    assert tab.locator("nav a").first.inner_text() == "What changed"
    assert tab.locator("main h2").first.inner_text() == "What changed"
    said = tab.locator("#changed").inner_text()
    for text in (changed["sentence"], changed["verdict"], "Worse: 6 tasks"):
        assert text.replace("`", "") in said
    lines = tab.locator("#changed .listing").first.locator("tbody tr")
    assert lines.count() == len(changed["lost"]) == 6
    assert "4/8" in lines.first.inner_text()
    lines.first.locator("button").click()
    tab.locator("#cell tbody tr").nth(15).wait_for()
    assert violations(tab) == []
    assert_fits(tab)
    assert tab.evaluate("window.hacked") is None
    assert_quiet(seen, page)


def test_attempts_that_earn_are_told_in_amounts(chromium: Any, tmp_path: Path) -> None:
    rows = sound()
    for row in rows:
        row["reward"] *= 2.5 + int(row["group"][-1])
    page, made = written(tmp_path, rows, recipe("gigpo"))
    assert made.answers["happened"]["outcome"] == "earned"
    tab, seen = opened(chromium, page)
    row = made.answers["happened"]["grid"]["tasks"][0]
    box = tab.get_by_role("button", name=f"Task {row['task']}").first
    won, of = row["cells"][0]
    assert box.inner_text() == f"{won / of:.2g}"
    assert "earned" in tab.locator("#session-list").inner_text()
    assert "%" not in tab.locator("#versions tbody").first.inner_text()
    assert_quiet(seen, page)


# All sessions.


def test_sessions_are_filtered_and_sorted(chromium: Any, agents: tuple[Path, Picture]) -> None:
    page, made = agents
    tab, seen = opened(chromium, page)
    lines = tab.locator("#session-list tbody tr")
    assert lines.count() == 25
    tab.get_by_role("button", name="Show more of 240").click()
    assert lines.count() == 100
    lost = sum(not row["won"] for row in made.answers["sessions"])
    tab.locator("#outcome").select_option("lost")
    assert tab.locator("#found").inner_text() == f"{lost} sessions of 240"
    tab.locator("#version").select_option("v2")
    tab.locator("#outcome").select_option("")
    assert tab.locator("#found").inner_text() == "80 sessions of 240"
    tab.locator("#name").fill("TASK 39")
    assert lines.count() == 2
    tab.locator("#name").fill("")
    tab.locator("#session-list").get_by_role("button", name="task").click()
    assert tab.locator("th[aria-sort=ascending]").inner_text() == "task ↑"
    assert "task 0" in lines.first.inner_text()
    tab.locator("#session-list").get_by_role("button", name="task").click()
    assert tab.locator("th[aria-sort=descending]").inner_text() == "task ↓"
    assert "task 39" in lines.first.inner_text()
    assert violations(tab) == []
    assert_quiet(seen, page)


def test_messages_are_searched(chromium: Any, agents: tuple[Path, Picture]) -> None:
    page, _ = agents
    tab, seen = opened(chromium, page)
    for asked, found in {"LOOK": 240, "done with 17.": 6, "no such text": 0}.items():
        tab.locator("#search").fill(asked)
        tab.locator("#search").press("Enter")
        words = f"{found} session{'s' if found != 1 else ''} of 240"
        tab.locator("#found", has_text=words).wait_for()
    tab.locator("#search").fill("done with 17")
    tab.locator("#find").click()
    hit = tab.locator("#session-list tbody tr", has_text="Done with 17.").first
    hit.locator("td a").last.click()
    tab.locator(".step.current").wait_for()
    assert "Done with 17." in tab.locator(".step.current").inner_text()
    tab.keyboard.press("Escape")
    tab.locator("#search").fill("")
    assert tab.locator("#session-list tbody tr").count() == 25
    assert_quiet(seen, page)


def test_a_browser_that_cannot_decompress_says_so(
    chromium: Any, agents: tuple[Path, Picture]
) -> None:
    page, made = agents
    tab, seen = opened(chromium, page)
    tab.add_init_script("delete window.DecompressionStream")
    tab.goto(f"{page.as_uri()}#session/task%2017%2F17-1-0")
    tab.reload()
    tab.locator("#reader", has_text="it lacks DecompressionStream").wait_for()
    tab.keyboard.press("Escape")
    assert tab.locator("#sentence").inner_text() == made.answers["happened"]["sentence"]
    assert tab.locator("#grid .box").count() == 120
    assert seen.complaints == []


# For training, and the page as a whole.


def test_the_figures(chromium: Any, report: Path) -> None:
    """They have their numbers, in a table and at the pointer, follow the theme and are printed."""
    tab, seen = opened(chromium, report)
    unfold(tab)
    figure = tab.locator("figure", has_text="Where the signal is")
    assert figure.locator("thead").inner_text().split() == ["term", "reason", "steps", "share"]
    signs = tab.locator("#comparison table").first
    assert signs.locator("thead").inner_text().split() == ["bipace_q", "grpo", "steps", "share"]
    assert signs.locator("tbody tr").count() == 9
    segment = figure.locator(".segment").first
    segment.scroll_into_view_if_needed()
    segment.hover()
    assert "share: " in tab.locator("#tip").inner_text()
    assert "%" in tab.locator("#tip").inner_text()
    points = tab.locator("figure", has_text="Signal over iterations").locator("circle")
    assert points.count() % 2 == 0
    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(paper)
    tab.locator("#theme").click()
    assert tab.evaluate(paper) != light
    assert tab.locator("#theme").inner_text() == "Light"
    tab.emulate_media(media="print")
    assert not tab.locator("#theme").is_visible()
    assert tab.pdf(format="A4").startswith(b"%PDF")
    assert_quiet(seen, report)


def test_a_run_without_rollouts_has_its_figures(chromium: Any, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs the extra trl or verl")
    (tmp_path / "config.yaml").write_text("evaluation: {threshold: 0.5}")
    lines = [
        {"iteration": number, "ascribe/success": number / 10, "ascribe/signal_share": 0.4}
        | ({HELD_OUT: number / 8} if number % 2 else {})
        for number in range(1, 7)
    ]
    write_jsonl(tmp_path / NAME, lines)
    run = read_run(tmp_path)
    assert run is not None
    page = tmp_path / "report.html"
    write_run(run, "<b>run</b>", page)
    size = {"width": 1400, "height": 900}
    tab = chromium.new_context(viewport=size, offline=True).new_page()
    faults: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready=yes]")
    chart = tab.locator("figure", has_text="Success over the run")
    assert chart.locator("circle").count() == 6 + 3
    assert chart.locator(".threshold").count() == 1
    assert tab.locator("h1").inner_text() == "<b>run</b>"
    if folder := os.environ.get("SCREENSHOTS"):
        tab.screenshot(path=Path(folder) / "run.png", full_page=True)
    assert violations(tab) == []
    assert_fits(tab)
    assert faults == []


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


def test_the_navigation_stays_in_sight(chromium: Any, report: Path) -> None:
    tab, _ = opened(chromium, report)
    tab.locator("nav a", has_text="Sessions").click()
    tab.wait_for_timeout(800)
    box = tab.locator("header").bounding_box()
    assert 0 <= box["y"] < 10
    assert tab.locator("#sessions h2").bounding_box()["y"] > box["y"] + box["height"]


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
    picture(files, recipe("gigpo"), compare=recipe("grpo")).write(folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations with an injection in every place: roles, ids, names, arguments, versions."""
    folder = tmp_path_factory.mktemp("chats")
    rows = []
    for number, text in enumerate(INJECTIONS):
        if r"\ud" in text:  # as an argument, it would be a lone half of a character
            continue
        for run in range(2):
            function = {"name": text, "arguments": json.dumps({text: text, "n": f"{text}\n{run}"})}
            call = {"id": text, "type": "function", "function": function}
            messages = [
                {"role": "system", "content": f"{text} {'long ' * 200}"},
                {"role": "user", "content": text},
                {"role": "assistant", "content": text, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": text, "content": f"{text} result"},
                {"role": "assistant", "content": text, "reasoning_content": text},
            ]
            named = {"task": f"{text}{number}", "session_id": f"{text}{number}/{run}"}
            version = INJECTIONS[(number * 17 + run) % 8 * 9]
            rows.append({**named, "version": version, "reward": run, "messages": messages})
    picture([write_jsonl(folder / "chats.jsonl", rows)], recipe("sbc")).write(
        folder / "report.html"
    )
    return folder / "report.html"


def assert_untouched(tab: Any) -> None:
    assert tab.evaluate("window.hacked") is None
    assert tab.title() == "Ascribe: what decided the outcome"
    packed = "script:not([type='application/gzip'])"
    assert tab.evaluate(f'document.querySelectorAll("{packed}").length') == 2
    strange = "form, iframe, object, embed, link, base, img, video, audio, dialog, marquee"
    assert tab.locator(f"{strange}, template, body style").count() == 0
    assert tab.evaluate("document.querySelectorAll('meta').length") == 4
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert not [name for name in tab.evaluate(handlers) if name.startswith("on")]
    assert tab.evaluate("({}).polluted") is None


def test_there_are_enough_injections() -> None:
    assert len(INJECTIONS) >= 200
    assert len(FILE_NAMES) >= 200


@pytest.mark.parametrize("kind", ["hostile", "chats"])
def test_no_injection_does_anything(
    chromium: Any, kind: str, request: pytest.FixtureRequest
) -> None:
    page = request.getfixturevalue(kind)
    tab, seen = opened(chromium, page)
    while (
        more := tab.locator("#session-list > button, #findings > button, #grid > button")
    ).count():
        if not [each.click() for each in more.all() if each.is_visible()]:
            break
    unfold(tab)
    links = tab.evaluate("[...document.querySelectorAll('a')].map((each) => each.hash)")
    for event in ("mousemove", "click"):
        tab.locator("#grid .box").first.dispatch_event(event, {"bubbles": True})
    assert_untouched(tab)
    assert_fits(tab)
    sessions = sorted({link for link in links if link.startswith("#session/")})
    assert len(sessions) >= 2 * len(INJECTIONS)
    # One after another: open it, unfold everything, look at what is shown.
    steps = tab.evaluate(
        """async (links) => {
          const counts = [];
          for (const link of links) {
            document.getElementById("reader").replaceChildren();
            location.hash = link;
            while (!document.querySelector("#back")) await new Promise((go) => setTimeout(go, 1));
            for (const each of document.querySelectorAll("#reader details")) each.open = true;
            for (const each of document.querySelectorAll("#reader pre + button")) each.click();
            counts.push(document.querySelectorAll("#reader pre").length);
          }
          return counts;
        }""",
        [link for link in sessions if link.count("/") == 1],
    )
    assert min(steps) >= 2
    for link in [link for link in links if link.startswith("#pair/")][:5]:
        tab.evaluate("hash => { location.hash = hash; }", link)
        tab.locator(".heads").wait_for()
    assert_untouched(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1400
    assert_quiet(seen, page)


def test_texts_are_shown_as_they_are_written(chromium: Any, chats: Path) -> None:
    tab, seen = opened(chromium, chats)
    tab.evaluate("""() => {
      const more = "#session-list > button";
      while (document.querySelector(more)) document.querySelector(more).click();
    }""")
    for number in (0, 40, 120, 200, len(INJECTIONS) - 30):
        text = INJECTIONS[number]
        if printable(text) != text or len(text) > 150:
            continue
        found = tab.evaluate(
            """(start) => [...document.querySelectorAll("#session-list a")]
              .map((each) => each.title).find((name) => name && name.startsWith(start))""",
            f"{text}{number}/",
        )
        reader = read(tab, found)
        user = reader.locator(".message.user pre").evaluate("e => e.textContent")
        assert user == text
        call = reader.locator("pre.call").evaluate("e => e.textContent")
        assert json.dumps(text, ensure_ascii=False) in call
    assert_quiet(seen, chats)


def test_hostile_names_of_files_do_nothing(chromium: Any, tmp_path: Path) -> None:
    """All names at once, in one page: each is a batch."""
    files = []
    for number, name in enumerate(FILE_NAMES):
        rows = sound(groups=1, size=2, length=1)
        files.append(write_jsonl(tmp_path / f"{number}{name}.jsonl", rows))
    picture(files, recipe("grpo")).write(tmp_path / "report.html")
    tab, seen = opened(chromium, tmp_path / "report.html")
    unfold(tab)
    assert tab.locator("#version option").count() == len(FILE_NAMES) + 1
    assert_untouched(tab)
    assert_quiet(seen, tmp_path / "report.html")


def test_nothing_of_a_bad_link_does_anything(chromium: Any, report: Path) -> None:
    tab, seen = opened(chromium, report)
    for text in INJECTIONS[::10]:
        for link in (f"#session/{quote(text, safe='')}/0", f"#{text}", f"#pair/{text}/1/{text}/2"):
            tab.evaluate("hash => { location.hash = hash; }", link)
        tab.wait_for_timeout(5)
    assert_untouched(tab)
    assert seen.complaints == []
