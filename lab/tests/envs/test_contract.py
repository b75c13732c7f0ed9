"""The check of environments: one broken environment for each fault, and none where all is well."""

import os
import pickle
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.steps.problems import Severity
from ascribe_lab.envs import INFO_KEYS, Environment, EpisodeOverError, Info, Outcome, Start, make
from ascribe_lab.envs.contract import HOSTILE, check_environment
from ascribe_lab.envs.faults import ContractFinding, ContractReport, Fault
from lab.tests.envs.toys import Corridor, Walk

PAGE = Path(__file__).parents[3] / "docs" / "environments" / "contract.md"
Five = tuple[Any, Any, Any, Any, Any]
Options = Mapping[str, Any] | None
BROKEN: dict[Fault, tuple[Callable[[], Any], set[Fault]]] = {}
"""For each fault the environment that shows it, and the faults that it cannot but show as well."""


def breaks(fault: Fault, *also: Fault) -> Callable[[Any], Any]:
    """Put a broken environment on the list."""

    def enter(kind: Any) -> Any:
        assert fault not in BROKEN
        BROKEN[fault] = (kind, set(also))
        return kind

    return enter


def check(factory: Callable[[], Any], **options: Any) -> ContractReport:
    return check_environment(factory, seeds=3, max_steps=30, patience=0.2, **options)


class Walled:
    """The corridor through a wall: nothing but the protocol gets through."""

    def __init__(self, **options: Any) -> None:
        self.inner = Corridor(**options)
        self.tasks = self.inner.tasks

    def reset(self, *, seed: int | None = None, options: Options = None) -> tuple[str, Info]:
        return self.inner.reset(seed=seed, options=options)

    def step(self, action: str) -> Five:
        return self.inner.step(action)

    def close(self) -> None:
        self.inner.close()


# What it is.


@breaks(Fault.CANNOT_BE_MADE)
class NeverMade(Corridor):
    def __init__(self) -> None:
        raise OSError("no such folder")


@breaks(Fault.NOT_AN_ENVIRONMENT)
class NoSteps:
    def reset(self, **_: Any) -> tuple[str, Info]:
        return "", {}


@breaks(Fault.RESET_FAILS)
class NoEvenSeeds(Corridor):
    def reset(self, *, seed: int | None = None, options: Options = None) -> tuple[str, Info]:
        if seed is not None and seed % 2 == 0:
            raise KeyError(seed)
        return super().reset(seed=seed, options=options)


@breaks(Fault.RESET_WITHOUT_SEED_FAILS)
class NeedsASeed(Corridor):
    def reset(self, *, seed: int | None = None, options: Options = None) -> tuple[str, Info]:
        if seed is None:
            raise ValueError("a seed is needed")
        return super().reset(seed=seed, options=options)


@breaks(Fault.STEP_FAILS)
class NoLeft(Corridor):
    def act(self, episode: Walk, action: str) -> Outcome:
        if action.startswith("left"):
            raise RuntimeError("left is not written yet")
        return super().act(episode, action)


@breaks(Fault.WRONG_SHAPE)
class FourValues(Corridor):
    def step(self, action: str) -> Any:
        return super().step(action)[:4]


# One seed, one episode.


@breaks(Fault.UNEQUAL_STARTS, Fault.TASK_NUMBERS_CHANGE)
class CountsInstances(Corridor):
    numbers = count()

    def __init__(self) -> None:
        super().__init__()
        self.number = next(self.numbers)

    def begin(self, task: int, generator: np.random.Generator) -> Start[Walk]:
        start = super().begin(task, generator)
        return Start(start.episode, f"{start.observation} ({self.number})", "walk", "near")


@breaks(Fault.NOT_DETERMINISTIC)
class CountsSteps(Corridor):
    """What an instance did in earlier episodes shows in later ones."""

    ever = 0

    def act(self, episode: Walk, action: str) -> Outcome:
        self.ever += 1
        return Outcome(f"You have taken {self.ever} steps in your life.")


@breaks(Fault.INSTANCES_DISTURB)
class OneForAll(Corridor):
    """The place is that of whoever was last reset."""

    shared = Walk(0, 0)

    def begin(self, task: int, generator: np.random.Generator) -> Start[Walk]:
        start = super().begin(task, generator)
        OneForAll.shared = start.episode
        return start

    def act(self, episode: Walk, action: str) -> Outcome:
        return Outcome(f"The goal is {OneForAll.shared.goal}.")


@breaks(Fault.PROCESSES_DIFFER)
class ProcessNumber(Corridor):
    def act(self, episode: Walk, action: str) -> Outcome:
        return Outcome(f"You are in process {os.getpid()}.")


@breaks(Fault.GLOBAL_RANDOM)
class SeedsEverybody(Corridor):
    def begin(self, task: int, generator: np.random.Generator) -> Start[Walk]:
        random.seed(int(generator.integers(100)))
        return super().begin(task, generator)


@breaks(Fault.SEEDS_ALL_ALIKE)
class OneStart(Corridor):
    tasks = None

    def begin(self, task: int, generator: np.random.Generator) -> Start[Walk]:
        return Start(Walk(2, 5), "You are at 2.", "go to 5", "near")


# What it says.


@breaks(Fault.NOT_TEXT, Fault.HOSTILE_TEXT_COMES_BACK)
class SaysNumbers(Corridor):
    def act(self, episode: Walk, action: str) -> Outcome:
        return Outcome(episode.place)  # type: ignore[arg-type]


@breaks(Fault.MALFORMED_TEXT, Fault.HOSTILE_TEXT_COMES_BACK)
class HalfCharacters(Corridor):
    def state_key(self, episode: Walk, observation: str) -> str:
        return "\ud83d"


@breaks(Fault.MISSING_INFO)
class ForgetsState(Walled):
    def step(self, action: str) -> Five:
        *others, info = super().step(action)
        del info["state"]
        return (*others, info)  # type: ignore[return-value]


@breaks(Fault.WRONG_INFO)
class NumpyFlags(Corridor):
    def act(self, episode: Walk, action: str) -> Outcome:
        return Outcome("", won=np.bool_(False))  # type: ignore[arg-type]


@breaks(Fault.INFO_CHANGES_LATER)
class OneInfo(Walled):
    def __init__(self) -> None:
        super().__init__()
        self.info: Info = {}

    def step(self, action: str) -> Five:
        *others, info = super().step(action)
        self.info.update(info)
        return (*others, self.info)  # type: ignore[return-value]


@breaks(Fault.BAD_REWARD)
class PaysInNaN(Corridor):
    def act(self, episode: Walk, action: str) -> Outcome:
        return Outcome("", reward=float("nan"))


@breaks(Fault.BAD_FLAG)
class OneOrZero(Corridor):
    def step(self, action: str) -> Five:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


@breaks(Fault.TERMINATED_AND_TRUNCATED)
class EndsTwice(Corridor):
    def step(self, action: str) -> Five:
        observation, reward, terminated, truncated, info = super().step(action)
        over = terminated or truncated
        return observation, reward, over, over, info


# How an episode begins and ends.


@breaks(Fault.STEP_BEFORE_RESET)
class PlaysUnasked(Corridor):
    def step(self, action: str) -> Five:
        if self.episode is None:
            return "Who are you?", 0.0, False, False, {}
        return super().step(action)


@breaks(Fault.STEP_AFTER_END)
class AnswersOn(Corridor):
    def step(self, action: str) -> Five:
        if self.episode is not None and self._over:
            return "", 0.0, True, False, self._report(Outcome(""))[1]
        return super().step(action)


@breaks(Fault.REWARD_AFTER_END, Fault.STEP_AFTER_END)
class PaysOn(Corridor):
    def step(self, action: str) -> Five:
        if self.episode is not None and self._over:
            return "", 1.0, True, False, self._report(Outcome(""))[1]
        return super().step(action)


@breaks(Fault.NEVER_ENDS)
class Endless(Corridor):
    def __init__(self) -> None:
        super().__init__(horizon=1000)

    def act(self, episode: Walk, action: str) -> Outcome:
        return Outcome("It goes on.")


@breaks(Fault.CLOSE_FAILS)
class ClosesOnce(Corridor):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("already closed")
        self.closed = True


# What can be done.


@breaks(Fault.ADMISSIBLE_REFUSED)
class ListsTooMuch(Corridor):
    def admissible(self, episode: Walk) -> list[str]:
        return ["left", "right", "fly"]


@breaks(Fault.DEAD_END)
class ListsNothing(Corridor):
    def admissible(self, episode: Walk) -> list[str]:
        return []


@breaks(Fault.NO_EXAMPLES)
class AnyText(Corridor):
    def admissible(self, episode: Walk) -> Any:
        return None


@breaks(Fault.HOSTILE_TEXT_CRASHES)
class ReadsNumbers(Corridor):
    def act(self, episode: Walk, action: str) -> Outcome:
        return super().act(episode, f"{int(action)}" if action.isdigit() else action)


@breaks(Fault.HOSTILE_TEXT_COMES_BACK)
class Echo(Corridor):
    def act(self, episode: Walk, action: str) -> Outcome:
        return Outcome(f"You said: {action}")


@breaks(Fault.HOSTILE_TEXT_SLOW)
class ReadsSlowly(Corridor):
    def act(self, episode: Walk, action: str) -> Outcome:
        time.sleep(0.3 * (len(action) > 500_000))
        return super().act(episode, action)


# Tasks.


@breaks(Fault.BAD_TASK_COUNT)
class NoTasks(Corridor):
    tasks = 0

    def _pick(self, options: dict[str, Any], generator: np.random.Generator) -> int:
        return int(generator.integers(8))


@breaks(Fault.TASK_REFUSED)
class FewerTasks(Corridor):
    tasks = 10**6  # so many that a reset without a seed does not draw the last one

    def begin(self, task: int, generator: np.random.Generator) -> Start[Walk]:
        if task == self.tasks - 1:
            raise KeyError(task)
        return super().begin(task, generator)


@breaks(Fault.TASK_OUT_OF_RANGE)
class CountsRound(Corridor):
    def _pick(self, options: dict[str, Any], generator: np.random.Generator) -> int:
        drawn = int(generator.integers(8))
        return options.get("task", drawn) % 8


@breaks(Fault.TASK_NUMBERS_CHANGE)
class Renumbers(Corridor):
    """Task numbers count from where the instance stands; seeds do not."""

    begun = 0

    def _pick(self, options: dict[str, Any], generator: np.random.Generator) -> int:
        task = super()._pick(dict(options), generator)
        if "task" in options:
            self.begun += 1
            return (task + self.begun) % 8
        return task


@breaks(Fault.TASKS_ALL_ALIKE)
class IgnoresTheTask(Corridor):
    def _pick(self, options: dict[str, Any], generator: np.random.Generator) -> int:
        super()._pick(dict(options), generator)
        return 3


# The tests.


IN_WORKER = {Fault.ENDS_ITS_PROCESS, Fault.HANGS}
"""Faults that only a check in a worker survives: lab/tests/attack/test_environment_in_worker.py."""


@pytest.mark.parametrize(
    "fault", [fault for fault in Fault if fault not in IN_WORKER], ids=lambda fault: fault.label
)
def test_every_fault_is_found_in_the_environment_that_has_it(fault: Fault) -> None:
    factory, also = BROKEN[fault]
    report = check(factory, another_process=fault is Fault.PROCESSES_DIFFER)
    found = {finding.fault for finding in report.findings}
    assert found == {fault} | also, "\n".join(map(str, report.findings))
    assert report.kept == (max(one.severity for one in found) < Severity.ERROR)


# Other ways to the same faults.


class OnlyObservation(Corridor):
    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0]


class AttributeErrors(Corridor):
    """Steps that make no sense fail somewhere inside."""

    def step(self, action: str) -> Five:
        if self._over:
            raise AttributeError("'NoneType' object has no attribute 'place'")
        return super().step(action)


class KeyErrors(Corridor):
    def _pick(self, options: dict[str, Any], generator: np.random.Generator) -> int:
        drawn = int(generator.integers(8))
        return {number: number for number in range(8)}[options.get("task", drawn)]


class ArrayInfo(Corridor):
    """A value that can be compared with nothing."""

    def _report(self, outcome: Outcome) -> tuple[str, Info]:
        observation, info = super()._report(outcome)
        return observation, {**info, "expert_action": np.array([1, 2])}


@pytest.mark.parametrize(
    ("factory", "fault", "said"),
    [
        (OnlyObservation, Fault.WRONG_SHAPE, "reset(seed=0) returned 'You are at"),
        (AttributeErrors, Fault.STEP_AFTER_END, "step raises AttributeError"),
        (AttributeErrors, Fault.STEP_BEFORE_RESET, "step raises AttributeError"),
        (KeyErrors, Fault.TASK_OUT_OF_RANGE, "task -1 of 8 raises KeyError"),
        (ArrayInfo, Fault.WRONG_INFO, "expert_action is array([1, 2])"),
    ],
)
def test_other_ways_to_the_same_faults(factory: Callable[[], Any], fault: Fault, said: str) -> None:
    found = {finding.fault: finding.detail for finding in check(factory).findings}
    assert said in found[fault]
    assert Fault.NOT_DETERMINISTIC not in found


def test_what_cannot_travel_to_another_process_is_said() -> None:
    def local() -> Environment:
        return Corridor()

    report = check(local, another_process=True)
    [finding] = report.findings
    assert finding.fault is Fault.PROCESSES_DIFFER
    assert "pickle" in finding.detail.lower()


@pytest.mark.parametrize("another_process", [False, True])
def test_a_good_environment_has_no_findings(another_process: bool) -> None:
    report = check(Corridor, another_process=another_process)
    assert report.findings == ()
    assert report.kept
    assert report.worst is None
    assert report.episodes == 3
    assert 3 <= report.steps <= 36
    assert report.steps_per_second > 0


def test_options_reach_the_environment() -> None:
    report = check(partial(Corridor, horizon=1))
    assert report.findings == ()
    assert report.steps == 3


def test_what_cannot_be_played_is_said_once() -> None:
    report = check(NeverMade)
    [finding] = report.findings
    assert finding.detail == "OSError: no such folder"
    assert (report.episodes, report.steps, report.steps_per_second) == (0, 0, 0.0)
    assert report.worst is Severity.FATAL


def test_an_environment_that_reads_a_clock_is_found() -> None:
    class Clock(Walled):
        def step(self, action: str) -> Five:
            return (f"It is {time.perf_counter_ns()}.", *super().step(action)[1:])

    assert Fault.NOT_DETERMINISTIC in {finding.fault for finding in check(Clock).findings}


def test_every_instance_is_closed_whatever_was_found() -> None:
    closed = []

    class Broken(FourValues):
        def close(self) -> None:
            closed.append(self)

    check(Broken)
    assert len(closed) == 2, "one instance, twice"


def test_at_most_three_instances_are_made() -> None:
    made = []

    def factory() -> Environment:
        made.append(Corridor())
        return made[-1]

    check(factory)
    assert len(made) == 3


def test_a_fault_that_shows_often_is_one_finding() -> None:
    [finding] = check(OneOrZero).findings
    assert finding.count > 10
    assert str(finding).startswith("error bad_flag: seed 0, step 0, terminated is 0 (")


def test_a_finding_is_one_printable_line() -> None:
    finding = ContractFinding(Fault.NOT_TEXT, "\x1b[2J\nobservation")
    assert str(finding).isprintable()
    assert str(finding).endswith("An observation is a str.")


def test_hostile_text_is_what_it_says() -> None:
    assert len(HOSTILE["a million letters"]) == 10**6
    with pytest.raises(UnicodeEncodeError):
        HOSTILE["half a surrogate pair"].encode()
    assert HOSTILE["a digit that is no number"].isdigit()
    with pytest.raises(ValueError, match="digits"):
        int(HOSTILE["a number of 5,000 digits"])


@pytest.mark.parametrize("arguments", [{"seeds": 0}, {"max_steps": 0}])
def test_nothing_to_play_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        check_environment(Corridor, **arguments)  # type: ignore[arg-type]


def test_a_report_is_plain_values() -> None:
    report = check(PaysOn)
    plain = report.as_dict()
    assert plain["kept"] is False
    assert plain["worst"] == "error"
    assert [one["fault"] for one in plain["findings"]] == ["step_after_end", "reward_after_end"]  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_factory_by_path_is_checked_like_any_other() -> None:
    assert check(partial(make, "lab.tests.envs.toys:Corridor", horizon=3)).findings == ()


def test_the_wall_lets_the_protocol_through() -> None:
    env = Walled()
    with pytest.raises(EpisodeOverError):
        env.step("left")
    assert isinstance(env, Environment)


def test_the_page_names_every_key() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for key in INFO_KEYS:
        assert f"\n| `{key}` |" in page
