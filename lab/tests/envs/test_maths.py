"""Maths: what counts as an answer, who judges it, and how long that may take."""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe_lab.envs import MissingExtraError, make, maths, maths_judge
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.maths import MathProblem, Maths, final_answer, read_problems
from ascribe_lab.envs.maths_judge import Judge, judge
from tests.hostile import HOSTILE, LONG, hostile_texts

needs_judge = pytest.mark.skipif(find_spec("math_verify") is None, reason="needs the extra maths")

ROWS: list[dict[str, Any]] = [
    {
        "question": "Tom has 3 bags of 4 apples. How many?",
        "answer": "3 * 4 = <<3*4=12>>12\n#### 12",
    },
    {"question": "What do 1,200 pens at $1 cost?", "answer": "1200 dollars.\n#### 1,200"},
    {"problem": "What is half of one?", "answer": r"\frac{1}{2}", "subject": "Prealgebra"},
    {
        "problem": "Solve.",
        "solution": r"So $x = \boxed{\left( 3, \frac{\pi}{2} \right)}$.",
        "type": "A",
    },
    {"question": "Who?", "answer": r"It is $\boxed{\text{Evelyn}}$. The answer is: \text{Evelyn}"},
    {"problem": "Factor it.", "answer": "(x+1)(x-1)"},
    {"problem": "Where?", "answer": r"(-\infty, 2] \cup (3, \infty)"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A few problems of every form."""
    path = tmp_path / "problems.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True, scope="module")
def ended_judge() -> Iterator[None]:
    """No process is left behind."""
    yield
    judge().close()


def answered(file: Path, task: int, action: str, **options: Any) -> tuple[float, bool]:
    """The reward of an answer, and whether it was valid."""
    environment = Maths(file=file, **options)
    environment.reset(seed=0, options={"task": task})
    _, reward, terminated, truncated, info = environment.step(action)
    assert terminated
    assert not truncated
    assert info["won"] == (reward == 1.0)
    return reward, info["valid"]


# Files.


def test_the_forms_of_a_problem(file: Path) -> None:
    problems = read_problems(file)
    assert [problem.gold for problem in problems] == [
        "12",
        "1,200",
        r"\frac{1}{2}",
        r"\left( 3, \frac{\pi}{2} \right)",
        r"\text{Evelyn}",
        "(x+1)(x-1)",
        r"(-\infty, 2] \cup (3, \infty)",
    ]
    families = ["gsm8k", "gsm8k", "Prealgebra", "A", "maths", "maths", "maths"]
    assert [problem.family for problem in problems] == families
    assert problems[0] == MathProblem("Tom has 3 bags of 4 apples. How many?", "12", "gsm8k")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "Expecting"),
        ("[1]", "not a JSON object"),
        ("{}", "neither question nor problem"),
        ('{"question": "q"}', "no answer"),
        ('{"question": "q", "solution": "no box"}', "no answer"),
        ('{"question": "q", "answer": "  "}', "no answer"),
        ('{"question": "q", "answer": 5}', "answer is not text"),
        ('{"question": "\\ud800", "answer": "5"}', "surrogates not allowed"),
        ("[" * 100_000, "line 2"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, error: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(ROWS[0]) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"line 2 of bad\.jsonl.*{error}|{error} of bad"):
        read_problems(path)


def test_an_empty_file_is_refused_and_a_changed_one_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no problems"):
        read_problems(path)
    path.write_text(json.dumps(ROWS[0]), encoding="utf-8")
    assert read_problems(path) is read_problems(path)
    path.write_text(json.dumps(ROWS[0]) + "\n" + json.dumps(ROWS[1]), encoding="utf-8")
    assert len(read_problems(path)) == 2


def test_without_the_package_the_extra_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maths, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"\[maths\]"):
        make("maths", file=file)


# What counts.


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{5}", "5"),
        (r"first \boxed{4}, no: \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("so\n#### 18\nthat is all", "18"),
        (r"#### 4 and \boxed{5}", "5"),
        (r"\boxed{5", None),
        (r"#### 7 \boxed{5", r"7 \boxed{5"),
        ("18", None),
        ("####", ""),
    ],
)
def test_the_final_answer_of_a_text(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@given(hostile_texts(r"\boxed{", "}", "{", "####"))
def test_looking_for_the_final_answer_never_raises(text: str) -> None:
    found = final_answer(text)
    assert found is None or found in text


@needs_judge
@pytest.mark.parametrize(
    ("task", "action", "reward"),
    [
        (0, "12", 1.0),
        (0, "12.0", 1.0),
        (0, "$12", 1.0),
        (0, "#### 12", 1.0),
        (0, "24/2", 1.0),
        (0, "The answer is 12.", 1.0),
        (0, r"He has 3 * 4 apples, so \boxed{12} apples", 1.0),
        (0, r"\boxed{12} or rather \boxed{13}", 0.0),
        (0, "13", 0.0),
        (1, "1200", 1.0),
        (1, r"\$1{,}200", 1.0),
        (1, "They cost $1,200 in all.", 1.0),
        (2, "0.5", 1.0),
        (2, "1/2", 1.0),
        (2, r"\frac12", 1.0),
        (2, r"$\dfrac{2}{4}$", 1.0),
        (2, "2", 0.0),
        (3, r"(3, \frac{\pi}{2})", 1.0),
        (3, r"(\frac{\pi}{2}, 3)", 0.0),
        (4, "Evelyn", 1.0),
        (4, "Angela", 0.0),
        (5, r"\boxed{x^2-1}", 1.0),
        (5, r"\boxed{x^2+1}", 0.0),
        (6, r"\boxed{(-\infty, 2] \cup (3, \infty)}", 1.0),
    ],
)
def test_answers_are_compared_by_what_they_mean(
    file: Path, task: int, action: str, reward: float
) -> None:
    assert answered(file, task, action) == (reward, True)


@needs_judge
def test_the_expert_is_right(file: Path) -> None:
    environment = Maths(file=file, expert=True)
    for task in range(len(ROWS)):
        observation, info = environment.reset(seed=0, options={"task": task})
        assert observation == info["task"] == info["state"]
        assert info["admissible_actions"] is None
        observation, reward, _, _, info = environment.step(info["expert_action"])
        assert (observation, reward) == ("The answer is right.", 1.0)


@needs_judge
def test_the_contract_is_kept(file: Path) -> None:
    report = check_environment(partial(make, "maths", file=file), seeds=4, patience=60)
    assert not report.findings


@needs_judge
def test_verdicts() -> None:
    verdict = maths_judge.judging()
    assert verdict(r"\boxed{1/2}", r"\boxed{0.5}") == "right"
    assert verdict(r"\boxed{1/2}", r"\boxed{0.6}") == "wrong"
    assert verdict(r"\boxed{1/2}", "I cannot say") == "unreadable"


@needs_judge
def test_time_to_judge_must_be_given(file: Path) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Maths(file=file, seconds=0)


# Hostile answers.


@needs_judge
@pytest.mark.slow
@pytest.mark.parametrize("text", [*HOSTILE.values(), *LONG.values()], ids=[*HOSTILE, *LONG])
def test_hostile_answers_earn_nothing(file: Path, text: str) -> None:
    assert answered(file, 0, text)[0] == 0.0


@needs_judge
@pytest.mark.parametrize("action", ["", " \n\t", "1" * 10_001, "\\boxed{12}" + " " * 10_000])
def test_nothing_and_too_much_are_refused_unread(file: Path, action: str) -> None:
    started = time.perf_counter()
    assert answered(file, 0, action) == (0.0, False)
    assert time.perf_counter() - started < 1


ENDLESS = [r"\boxed{9^{9^{9^9}}}", r"\boxed{(10^{9})!}", "(" * 3_000 + "12", r"\frac{" * 1_500]


@needs_judge
@pytest.mark.slow
@pytest.mark.parametrize("action", ENDLESS)
def test_an_endless_computation_is_cut_and_the_next_answer_is_judged(
    file: Path, action: str
) -> None:
    assert answered(file, 0, "12") == (1.0, True)  # the judge is awake
    started = time.perf_counter()
    assert answered(file, 0, action, seconds=0.5) == (0.0, False)
    assert time.perf_counter() - started < 60
    assert answered(file, 0, "12") == (1.0, True)


@needs_judge
def test_answers_are_not_run_as_code(file: Path, tmp_path: Path) -> None:
    mark = tmp_path / "run"
    for form in ("{}", r"\boxed{{{}}}", "The answer is ${}$.", "The answer is {}"):
        answered(file, 0, form.format(f"__import__('pathlib').Path('{mark}').touch()"))
    assert not mark.exists()


@needs_judge
def test_threads_share_the_judge(file: Path) -> None:
    rewards: list[float] = []
    threads = [
        threading.Thread(target=lambda: rewards.append(answered(file, 0, "12")[0]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rewards == [1.0] * 8


def _in_a_worker(file: Path, answers: Any) -> None:
    answers.put((answered(file, 0, "12"), answered(file, 0, "13")))
    judge().close()


@needs_judge
@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_daemonic_workers_have_judges_of_their_own(file: Path, method: Any) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot {method}")
    assert answered(file, 0, "12") == (1.0, True)
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    worker = context.Process(target=_in_a_worker, args=(file, answers), daemon=True)
    worker.start()
    assert answers.get(timeout=120) == ((1.0, True), (0.0, True))
    worker.join()
    assert answered(file, 0, "12") == (1.0, True)


@needs_judge
@pytest.mark.slow
def test_a_judge_that_sleeps_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Judge()
    assert own(r"\boxed{2}", r"\boxed{2}", 60) == "right"
    monkeypatch.setattr(maths_judge, "PATIENCE", 0.5)
    child = own._child
    assert child is not None
    child.send_signal(signal.SIGSTOP)
    assert own(r"\boxed{2}", r"\boxed{2}", 0.5) == "unreadable"
    assert child.poll() is not None


@needs_judge
@pytest.mark.slow
def test_a_judge_that_died_is_replaced() -> None:
    own = Judge()
    assert own(r"\boxed{2}", r"\boxed{2}", 60) == "right"
    assert own._child is not None
    own._child.kill()
    own._child.wait()
    assert own(r"\boxed{2}", r"\boxed{2}", 60) == "unreadable"
    assert own(r"\boxed{2}", r"\boxed{3}", 60) == "wrong"
    own.close()
    own.close()


def test_a_judge_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false" if os.name == "posix" else "where")
    with pytest.raises(RuntimeError, match="did not start"):
        Judge()("1", "1", 1)


# Real data, where there is some.


@needs_judge
@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("gsm8k", 1319), ("math500", 500)])
@pytest.mark.parametrize("form", ["{}", r"\boxed{{{}}}", "So the answer is ${}$."])
def test_every_gold_answer_equals_itself(name: str, count: int, form: str) -> None:
    folder = os.environ.get("ASCRIBE_TEST_DATA")
    if folder is None:
        pytest.skip("ASCRIBE_TEST_DATA names no folder with gsm8k and math500")
    environment = Maths(file=Path(folder, name, "test.jsonl"))
    assert environment.tasks == count
    wrong = []
    for task, problem in enumerate(environment.problems):
        environment.reset(seed=0, options={"task": task})
        if environment.step(form.format(problem.gold))[1] != 1.0:
            wrong.append(problem.gold)
    assert wrong == []


@needs_judge
@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_integers_are_equal_if_they_are(gold: int, answer: int) -> None:
    for said in (gold, answer):
        verdict = judge()(rf"\boxed{{{gold}}}", rf"\boxed{{{said}}}", 60)
        assert verdict == ("right" if said == gold else "wrong")
