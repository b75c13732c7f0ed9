"""Check an environment against the contract: ``check_environment`` plays it and lists the faults.

It makes three instances, plays the same episodes in them in different orders, and compares every
result. It looks at what Ascribe reads: observation, reward, ends and the keys of ``INFO_KEYS``.
"""

import multiprocessing
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import zip_longest
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from ascribe.steps.errors import InputError
from ascribe.steps.problems import printable
from ascribe.steps.table import encodable
from ascribe_lab.envs.faults import ContractFinding, ContractReport, Fault
from ascribe_lab.envs.protocol import (
    INFO_KEYS,
    Environment,
    EpisodeOverError,
    missing_members,
)

NONSENSE = ("look", "help", "1", "yes", "go north", "answer")
"""Actions of random play where an environment names none."""

HOSTILE = {
    "nothing": "",
    "blanks": " \t\n",
    "control characters": "\x00\x07\x1b[2J\x7f\r",
    "half a surrogate pair": "go \ud800 north",
    "another direction of writing": "\u202eog\u200f",
    "braces": "{0} {action} {{ %s %(a)s ${x}",
    "markup": "<action></action><script>[INST]",
    "a digit that is no number": "\u00b2",
    "a number of 5,000 digits": "9" * 5_000,
    "not a number": "nan",
    "a million letters": "x" * 1_000_000,
    "a million brackets": "[" * 1_000_000,
}
"""What a model may write one day."""


def _is(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


RULES: dict[str, tuple[Fault, Callable[[Any], bool]]] = {
    "observation": (Fault.NOT_TEXT, _is(str)),
    "reward": (Fault.BAD_REWARD, lambda value: isinstance(value, float) and isfinite(value)),
    "terminated": (Fault.BAD_FLAG, _is(bool)),
    "truncated": (Fault.BAD_FLAG, _is(bool)),
    "admissible_actions": (Fault.WRONG_INFO, lambda value: value is None or _is_texts(value)),
    "won": (Fault.WRONG_INFO, _is(bool)),
    "task_family": (Fault.WRONG_INFO, _is(str)),
    "task": (Fault.WRONG_INFO, _is(str)),
    "state": (Fault.WRONG_INFO, _is(str)),
    "valid": (Fault.WRONG_INFO, _is(bool)),
    "example_actions": (Fault.WRONG_INFO, _is_texts),
    "expert_action": (Fault.WRONG_INFO, _is(str | None)),
}
"""Every value that Ascribe reads: what it must be, and the fault if it is not."""

Factory = Callable[[], Environment]


def check_environment(
    factory: Factory,
    *,
    seeds: int = 5,
    max_steps: int = 200,
    patience: float = 5.0,
    another_process: bool = False,
) -> ContractReport:
    """Play an environment and list every breach of the contract.

    Args:
        factory: makes an instance; called up to three times.
        seeds: how many seeds are played.
        max_steps: a random episode is abandoned after so many steps.
        patience: seconds that a hostile action may take.
        another_process: whether one episode is also played in a new process, where text hashes
            differently. The factory must survive pickle, and a script that calls this must guard
            its entry point with ``if __name__ == "__main__"``.

    Returns:
        The findings, worst first. ``ContractReport.kept`` tells whether the contract is kept.

    Example:
        >>> from ascribe_lab.envs import make
        >>> from ascribe_lab.envs.contract import check_environment
        >>> check_environment(lambda: make("ezpoints"), seeds=1).kept
        True
    """
    checker = ContractChecker(factory, seeds, max_steps, patience)
    for part in PARTS:
        if part != "new_process" or another_process:
            checker.run(part)
    return checker.report()


class _CheckStoppedError(Exception):
    """A fault that leaves a check nothing to go on with; never raised outside this module."""


class _Result(NamedTuple):
    """What ``reset`` (reward 0, no end) or ``step`` returned."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Mapping[str, Any]

    @property
    def over(self) -> bool:
        return bool(self.terminated) or bool(self.truncated)

    def values(self) -> dict[str, Any]:
        """Every value that Ascribe reads and that is there, by name."""
        values = {**self.info, **self._asdict()}
        return {name: values[name] for name in RULES if name in values}

    def malformed(self) -> list[tuple[str, str]]:
        """Texts that cannot be written to a file, by name: they hold half a surrogate pair."""
        return [
            (name, text)
            for name, value in self.values().items()
            for text in (value if isinstance(value, list) else [value])
            if isinstance(text, str) and not encodable(text)
        ]

    def difference(self, other: "_Result") -> str | None:
        """Where two results differ, as far as Ascribe reads them."""
        ours, theirs = self.values(), other.values()
        for name in RULES:
            one, two = ours.get(name), theirs.get(name)
            if not _equal(one, two):
                return f"{name} is {_shown(one)}, then {_shown(two)}"
        return None


class _RecordedEpisode(NamedTuple):
    """A played episode: the result of the reset, then one for each action."""

    seed: int
    actions: Sequence[str]
    results: Sequence[_Result]


PARTS = (
    *("random_episodes", "second_instance", "interleaved_instances", "unusual_beginnings"),
    *("listed_actions", "hostile_actions", "task_numbers", "new_process", "close"),
)
"""The parts of a check, in their order: methods of ``ContractChecker``."""


class ContractChecker:
    """Collects the faults. One method for each part of the contract."""

    def __init__(
        self, factory: Factory, seeds: int = 5, max_steps: int = 200, patience: float = 5.0
    ) -> None:
        if seeds < 1 or max_steps < 1:
            raise InputError("seeds and max_steps must be at least 1")
        self.factory = factory
        self.seeds = range(seeds)
        self.max_steps = max_steps
        self.patience = patience
        self.found: dict[Fault, tuple[str, int]] = {}
        self.instances: list[Environment] = []
        self.episodes: list[_RecordedEpisode] = []
        self.seconds = 0.0

    def report(self) -> ContractReport:
        """The faults that were found so far."""
        findings = [ContractFinding(fault, *found) for fault, found in self.found.items()]
        steps = sum(len(episode.actions) for episode in self.episodes)
        return ContractReport(
            findings=tuple(sorted(findings, key=lambda finding: -finding.severity)),
            episodes=len(self.episodes),
            steps=steps,
            steps_per_second=steps / self.seconds if self.seconds > 0 else 0.0,
        )

    def run(self, part: str) -> None:
        """Carry out one of ``PARTS``."""
        # Without a single recorded episode the later parts would repeat the same finding.
        if self.episodes or part in {"random_episodes", "close"}:
            with suppress(_CheckStoppedError):
                getattr(self, part)()

    def note(self, fault: Fault, detail: str) -> None:
        """Record a fault: the first detail, and how often it was found."""
        detail = printable(detail)
        first, count = self.found.get(fault, (detail, 0))
        self.found[fault] = (first, count + 1)

    @property
    def deterministic(self) -> bool:
        """Whether one seed gave one episode so far."""
        return not {Fault.UNEQUAL_STARTS, Fault.NOT_DETERMINISTIC} & self.found.keys()

    # Calls of the environment.

    def attempt(self, fault: Fault, where: str, call: Callable[[], Any]) -> Any:
        """The result of a call; if it raises, that is the fault, and the check stops."""
        try:
            return call()
        except Exception as error:
            self.note(fault, f"{where}{_described(error)}")
            raise _CheckStoppedError from error

    def must_raise(
        self, expected: type[Exception], fault: Fault, where: str, call: Callable[[], Any]
    ) -> Any:
        """Note the fault if a call does not raise the expected error; returns its result."""
        try:
            result = call()
        except expected:
            return None
        except Exception as error:
            self.note(fault, f"{where} raises {_described(error)}")
            return None
        self.note(fault, f"{where} returns {_shown(result)}")
        return result

    def compare(
        self, fault: Fault, where: str, then: Sequence[_Result], now: Iterable[_Result]
    ) -> bool:
        """Whether results are the recorded ones; stops at the first difference, and notes it."""
        # The recorded ones come first: when they end, nothing more is played.
        for number, (one, other) in enumerate(zip(then, now, strict=False)):
            if (what := one.difference(other)) is not None:
                self.note(fault, f"{where}, result {number}: {what}")
                return False
        return True

    def instance(self, number: int) -> Environment:
        """One of the instances, made when it is first needed: making one may take long."""
        while len(self.instances) <= number:
            env = self.attempt(Fault.CANNOT_BE_MADE, "", self.factory)
            if lacks := missing_members(env):
                self.note(Fault.NOT_AN_ENVIRONMENT, f"it lacks {', '.join(lacks)}")
                raise _CheckStoppedError
            self.instances.append(env)
        return self.instances[number]

    def reset(
        self, env: Environment, fault: Fault = Fault.RESET_FAILS, **arguments: Any
    ) -> _Result:
        """Begin an episode; ``fault`` is what to note if that raises."""
        call = f"reset({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
        returned = self.attempt(fault, f"{call}: ", partial(env.reset, **arguments))
        observation, info = self.unpack(returned, 2, call)
        result = _Result(observation, 0.0, False, False, info)
        self.inspect(result, f"after {call}")
        return result

    def step(self, env: Environment, action: str, where: str) -> _Result:
        """Act, and check the result."""
        call = f"{where}, step({_shown(action)}): "
        returned = self.attempt(Fault.STEP_FAILS, call, partial(env.step, action))
        result = _Result(*self.unpack(returned, 5, f"{where}, step"))
        self.inspect(result, where)
        return result

    def unpack(self, returned: Any, length: int, where: str) -> tuple[Any, ...]:
        """The values that a call returned, info last."""
        if (
            not isinstance(returned, tuple)
            or len(returned) != length
            or not isinstance(returned[-1], dict)
        ):
            self.note(Fault.WRONG_SHAPE, f"{where} returned {_shown(returned)}")
            raise _CheckStoppedError
        return returned

    def inspect(self, result: _Result, where: str) -> None:
        """Everything that can be wrong with one result alone."""
        for name, text in result.malformed():
            self.note(Fault.MALFORMED_TEXT, f"{where}, in {name}: {_shown(text)}")
        for name, value in result.values().items():
            fault, is_right = RULES[name]
            if not is_right(value):
                self.note(fault, f"{where}, {name} is {_shown(value)}")
        if result.terminated and result.truncated:
            self.note(Fault.TERMINATED_AND_TRUNCATED, where)
        for name in INFO_KEYS:
            if name not in result.info:
                self.note(Fault.MISSING_INFO, f"{where}, info lacks {name}")
        if result.info.get("admissible_actions") == [] and not result.over:
            self.note(Fault.DEAD_END, where)

    def choices(self, info: Mapping[str, Any], where: str) -> Sequence[str]:
        """The actions that random play chooses from."""
        for listed in (info.get("admissible_actions"), info.get("example_actions")):
            if listed and _is_texts(listed):
                return listed  # type: ignore[no-any-return]
        if info.get("admissible_actions") is None:
            self.note(Fault.NO_EXAMPLES, where)
        return NONSENSE

    def accepted(self, action: str, result: _Result, where: str) -> None:
        """Note an admissible action that came back as invalid."""
        if result.info.get("valid") is False:
            self.note(Fault.ADMISSIBLE_REFUSED, f"{where}, {_shown(action)}")

    # The checks.

    def random_episodes(self) -> None:
        """Random play in one instance: the episodes that all else is compared with."""
        env = self.instance(0)
        before = _global_generators()
        for seed in self.seeds:
            self.episodes.append(self.random_episode(env, seed))
        if _global_generators() != before:
            self.note(Fault.GLOBAL_RANDOM, "random play moved the global generators")
        if not any(episode.results[-1].over for episode in self.episodes):
            self.note(Fault.NEVER_ENDS, f"none of {len(self.seeds)} within {self.max_steps} steps")
        starts = [episode.results[0] for episode in self.episodes]
        if _all_alike(starts):
            self.note(Fault.SEEDS_ALL_ALIKE, f"seeds 0 to {len(starts) - 1}")

    def random_episode(self, env: Environment, seed: int) -> _RecordedEpisode:
        """One episode of random actions, and what happens after its end."""
        chooser = random.Random(seed)
        returned = [self.reset(env, seed=seed)]
        kept = [deepcopy(returned[0])]
        actions: list[str] = []
        while not returned[-1].over and len(actions) < self.max_steps:
            where = f"seed {seed}, step {len(actions)}"
            choices = self.choices(returned[-1].info, where)
            action = chooser.choice(choices)
            started = time.perf_counter()
            result = self.step(env, action, where)
            self.seconds += time.perf_counter() - started
            if choices is returned[-1].info.get("admissible_actions"):
                self.accepted(action, result, where)
            actions.append(action)
            returned.append(result)
            kept.append(deepcopy(result))
        self.compare(Fault.INFO_CHANGES_LATER, f"seed {seed}", kept, returned)
        if kept[-1].over:
            self.after_end(env, f"seed {seed}, after the end")
        return _RecordedEpisode(seed, actions, kept)

    def after_end(self, env: Environment, where: str) -> None:
        """Two steps after the end, since some environments refuse only the first."""
        step = partial(env.step, "look")
        for _ in range(2):
            call = f"{where}, step"
            returned = self.must_raise(EpisodeOverError, Fault.STEP_AFTER_END, call, step)
            if isinstance(returned, tuple) and len(returned) == 5 and returned[1]:
                self.note(Fault.REWARD_AFTER_END, f"{where}, the reward is {_shown(returned[1])}")

    def play(self, env: Environment, episode: _RecordedEpisode) -> Iterator[_Result]:
        """Play an episode again, step by step."""
        yield self.reset(env, seed=episode.seed)
        for number, action in enumerate(episode.actions):
            yield self.step(env, action, f"seed {episode.seed}, step {number}")

    def second_instance(self) -> None:
        """The same episodes in another instance, the last one first, and again in that one."""
        env = self.instance(1)
        for episode in [*reversed(self.episodes), *self.episodes[-1:]]:
            where, (start, *others) = f"seed {episode.seed}", episode.results
            results = self.play(env, episode)
            if self.compare(Fault.UNEQUAL_STARTS, where, [start], results):
                self.compare(Fault.NOT_DETERMINISTIC, where, others, results)

    def interleaved_instances(self) -> None:
        """The first episode again, while another instance plays the last one between its steps."""
        if not self.deterministic:
            return
        episode, beside = self.episodes[0], self.play(self.instance(1), self.episodes[-1])
        results = (one for one, _ in zip_longest(self.play(self.instance(0), episode), beside))
        where = f"beside another instance, seed {episode.seed}"
        self.compare(Fault.INSTANCES_DISTURB, where, episode.results, results)

    def new_process(self) -> None:
        """The first episode again in a new process."""
        if not self.deterministic:
            return
        episode = self.episodes[0]
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as process:
            work = process.submit(_play, self.factory, episode.seed, list(episode.actions))
            results = self.attempt(Fault.PROCESSES_DIFFER, "in a new process: ", work.result)
        self.compare(Fault.PROCESSES_DIFFER, f"seed {episode.seed}", episode.results, results)

    def unusual_beginnings(self) -> None:
        """A step in an instance that was never reset, and a reset without arguments."""
        step = partial(self.instance(2).step, "look")
        self.must_raise(EpisodeOverError, Fault.STEP_BEFORE_RESET, "step", step)
        self.reset(self.instance(0), Fault.RESET_WITHOUT_SEED_FAILS)

    def listed_actions(self) -> None:
        """Actions listed at the start, each tried: at most 20, spread over the list."""
        first = self.episodes[0]
        choices = self.choices(first.results[0].info, "at the start")
        if choices is not first.results[0].info.get("admissible_actions"):
            return
        for action in _spread(choices, 20):
            self.reset(self.instance(0), seed=first.seed)
            result = self.step(self.instance(0), action, "at the start")
            self.accepted(action, result, "at the start")

    def hostile_actions(self) -> None:
        """Every hostile text alone, and as part of an action that the environment knows."""
        first, env = self.episodes[0], self.instance(0)
        known = self.choices(first.results[0].info, "at the start")[0]
        for name, text in HOSTILE.items():
            # Also in the place of the action's first number.
            with_number = re.sub(r"\d+", lambda _: text, known, count=1)  # noqa: B023
            for action in dict.fromkeys((text, f"{known} {text}", with_number)):
                self.reset(env, seed=first.seed)
                self.hostile_action(env, action, f"{name} in {_shown(action)}")

    def hostile_action(self, env: Environment, action: str, where: str) -> None:
        """One hostile text."""
        started = time.perf_counter()
        try:
            returned = env.step(action)
        except Exception as error:
            self.note(Fault.HOSTILE_TEXT_CRASHES, f"{where}: {_described(error)}")
            return
        if (took := time.perf_counter() - started) > self.patience:
            self.note(Fault.HOSTILE_TEXT_SLOW, f"{where}: {took:.1f} seconds")
        result = _Result(*self.unpack(returned, 5, f"{where}, step"))
        spoilt: list[Any] = [text for _, text in result.malformed()]
        if not isinstance(result.observation, str):
            spoilt.append(result.observation)
        for text in spoilt[:1]:
            self.note(Fault.HOSTILE_TEXT_COMES_BACK, f"{where}: {_shown(text)}")

    def task_numbers(self) -> None:
        """Tasks by number: the first, the last, some between, and those that do not exist."""
        one, other = self.instance(0), self.instance(1)
        count = one.tasks
        if count is None:
            return
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            self.note(Fault.BAD_TASK_COUNT, f"tasks is {_shown(count)}")
            return

        def begin(env: Environment, task: int) -> _Result:
            return self.reset(env, Fault.TASK_REFUSED, seed=0, options={"task": task})

        numbers = _spread(range(count), 8)
        starts = [begin(one, number) for number in numbers]
        # In reverse order, so that state left by one task shows in the next.
        for number, start in zip(reversed(numbers), reversed(starts), strict=True):
            again = [begin(other, number)]
            self.compare(Fault.TASK_NUMBERS_CHANGE, f"task {number}", [start], again)
        if _all_alike(starts):
            self.note(Fault.TASKS_ALL_ALIKE, f"tasks {', '.join(map(str, numbers))}")
        for number in (-1, count):
            call = f"task {number} of {count}"
            reset = partial(one.reset, seed=0, options={"task": number})
            self.must_raise(ValueError, Fault.TASK_OUT_OF_RANGE, call, reset)

    def close(self) -> None:
        """Close every instance, twice."""
        for env in self.instances:
            for which in ("first", "second"):
                try:
                    env.close()
                except Exception as error:
                    self.note(Fault.CLOSE_FAILS, f"the {which} time: {_described(error)}")


def _play(factory: Factory, seed: int, actions: list[str]) -> list[_Result]:
    """The results of these actions in a new instance; runs in another process."""
    env = factory()
    try:
        observation, info = env.reset(seed=seed)
        start = _Result(observation, 0.0, False, False, info)
        return [start, *(_Result(*env.step(action)) for action in actions)]
    finally:
        env.close()


def _equal(one: Any, other: Any) -> bool:
    """Equality that holds for NaN and for values that cannot be compared."""
    try:
        return bool(one == other) or repr(one) == repr(other)
    except Exception:
        return repr(one) == repr(other)


def _all_alike(starts: Sequence[_Result]) -> bool:
    return len(starts) > 1 and all(starts[0].difference(start) is None for start in starts)


def _spread(values: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the values, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[i * (len(values) - 1) // (most - 1)] for i in range(most)]


def _global_generators() -> tuple[Any, str]:
    """The states of the generators that everybody shares."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002 (to see whether somebody moves it)
    return random.getstate(), repr(numpy_state)


def _shown(value: object) -> str:
    """A value in at most 80 characters."""
    text = repr(value[:80] if isinstance(value, str) else value)
    return text if len(text) <= 80 else text[:79] + "…"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
