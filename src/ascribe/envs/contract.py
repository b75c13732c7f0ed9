"""Does an environment keep the contract? ``check_environment`` plays it and lists what is wrong.

It makes three instances, plays the same episodes in them in different orders, and compares every
answer. It looks at what Ascribe reads: observation, reward, ends and the keys of ``INFO_KEYS``.
"""

import multiprocessing
import pickle
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from math import isfinite
from typing import Any

import numpy as np

from ascribe.envs.answers import (
    Answer,
    Episode,
    difference,
    fits,
    is_unicode,
    said,
    shown,
    texts,
)
from ascribe.envs.faults import Fault, Finding, Report
from ascribe.envs.protocol import INFO_KEYS, Branching, Environment, EpisodeOverError, branching

NONSENSE = ("look", "help", "1", "yes", "go north", "answer")
"""Said in random play where an environment names no actions."""

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
"""What a model may say one day."""


class _Stop(Exception):  # noqa: N818 (control flow, never seen outside)
    """The environment's answer leaves nothing to go on with."""


def check_environment(
    factory: Callable[[], Environment],
    *,
    seeds: int = 5,
    max_steps: int = 200,
    patience: float = 5.0,
    another_process: bool = False,
) -> Report:
    """Play an environment and list every breach of the contract.

    Args:
        factory: makes an instance; called a few times, always with the same meaning.
        seeds: how many seeds are played.
        max_steps: an episode of random play is left after so many steps.
        patience: a strange action may take so many seconds.
        another_process: whether one episode is also played in a new process, where text hashes
            differently. The factory must survive pickle, and a script that calls this must guard
            its own start with ``if __name__ == "__main__"``.

    Returns:
        The findings, worst first. ``Report.kept`` says whether the contract is kept.
    """
    if seeds < 1 or max_steps < 1:
        raise ValueError("seeds and max_steps must be at least 1")
    examiner = _Examiner(factory, seeds, max_steps, patience)
    parts = [
        examiner.record,
        examiner.compare_instances,
        examiner.compare_interleaved,
        examiner.before_reset,
        examiner.without_seed,
        examiner.listed_actions,
        examiner.hostile_actions,
        examiner.task_numbers,
        examiner.going_back,
    ]
    if another_process:
        parts.append(examiner.compare_processes)
    for part in parts:
        try:
            part()
        except _Stop:
            # Without a single recorded episode the other parts would repeat the same finding.
            if not examiner.episodes:
                break
    examiner.closing()
    return examiner.report()


class _Examiner:
    """Collects what is wrong. One method for each part of the contract."""

    def __init__(
        self, factory: Callable[[], Environment], seeds: int, max_steps: int, patience: float
    ) -> None:
        self.factory = factory
        self.seeds = range(seeds)
        self.max_steps = max_steps
        self.patience = patience
        self.found: dict[Fault, tuple[str, int]] = {}
        self.made: list[Environment] = []
        self.episodes: list[Episode] = []
        self.seconds = 0.0
        self.goes_back: str | None = None

    def report(self) -> Report:
        """What was found, worst first."""
        findings = [Finding(fault, *said) for fault, said in self.found.items()]
        steps = sum(len(episode.actions) for episode in self.episodes)
        return Report(
            findings=tuple(sorted(findings, key=lambda finding: -finding.severity)),
            episodes=len(self.episodes),
            steps=steps,
            steps_per_second=steps / self.seconds if self.seconds > 0 else 0.0,
            goes_back=self.goes_back,
        )

    def note(self, fault: Fault, detail: str) -> None:
        """Remember a fault: the first detail, and how often it showed."""
        first, count = self.found.get(fault, (detail, 0))
        self.found[fault] = (first, count + 1)

    @property
    def deterministic(self) -> bool:
        """Whether one seed gave one episode so far."""
        return not {Fault.UNEQUAL_STARTS, Fault.NOT_DETERMINISTIC} & self.found.keys()

    # Calls, with everything that can be seen in one answer.

    def instance(self, number: int) -> Environment:
        """One of the instances, made when it is first needed: to make one may take long."""
        while len(self.made) <= number:
            try:
                env = self.factory()
            except Exception as error:
                self.note(Fault.CANNOT_BE_MADE, said(error))
                raise _Stop from error
            lacks = [name for name in ("reset", "step", "close", "tasks") if not hasattr(env, name)]
            if lacks:
                self.note(Fault.NOT_AN_ENVIRONMENT, f"it lacks {', '.join(lacks)}")
                raise _Stop
            self.made.append(env)
        return self.made[number]

    def reset(self, env: Environment, fault: Fault = Fault.RESET_FAILS, **arguments: Any) -> Answer:
        """Begin an episode; ``fault`` is what it is called if that raises."""
        call = f"reset({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
        try:
            answer = env.reset(**arguments)
        except Exception as error:
            self.note(fault, f"{call}: {said(error)}")
            raise _Stop from error
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
            self.note(Fault.WRONG_SHAPE, f"{call} returned {shown(answer)}")
            raise _Stop
        started = Answer(answer[0], 0.0, False, False, answer[1])
        self.inspect(started, f"after {call}")
        return started

    def step(self, env: Environment, action: str, where: str) -> Answer:
        """Act, and look at the answer."""
        try:
            answer = env.step(action)
        except Exception as error:
            self.note(Fault.STEP_FAILS, f"{where}, step({shown(action)}): {said(error)}")
            raise _Stop from error
        told = self.five(answer, where)
        self.inspect(told, where)
        return told

    def five(self, answer: Any, where: str) -> Answer:
        """The five values of a step, or a stop."""
        if not (isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], dict)):
            self.note(Fault.WRONG_SHAPE, f"{where}, step returned {shown(answer)}")
            raise _Stop
        return Answer(*answer)

    def inspect(self, answer: Answer, where: str) -> None:
        """Everything that can be wrong with one answer alone."""
        if not isinstance(answer.observation, str):
            self.note(Fault.NOT_TEXT, f"{where}, the observation is {shown(answer.observation)}")
        for name, text in texts(answer):
            if not is_unicode(text):
                self.note(Fault.MALFORMED_TEXT, f"{where}, in {name}: {shown(text)}")
        if not (isinstance(answer.reward, float) and isfinite(answer.reward)):
            self.note(Fault.BAD_REWARD, f"{where}, the reward is {shown(answer.reward)}")
        for name in ("terminated", "truncated"):
            if not isinstance(flag := getattr(answer, name), bool):
                self.note(Fault.BAD_FLAG, f"{where}, {name} is {shown(flag)}")
        if answer.terminated and answer.truncated:
            self.note(Fault.TERMINATED_AND_TRUNCATED, f"{where}, both are set")
        for name in INFO_KEYS:
            if name not in answer.info:
                self.note(Fault.MISSING_INFO, f"{where}, info lacks {name}")
        for name, value in answer.info.items():
            if not fits(name, value):
                self.note(Fault.WRONG_INFO, f"{where}, {name} is {shown(value)}")
        if answer.info.get("admissible_actions") == [] and not answer.over:
            self.note(Fault.DEAD_END, where)

    def choices(self, info: Mapping[str, Any], where: str) -> Sequence[str]:
        """What can be said now."""
        for name in ("admissible_actions", "example_actions"):
            listed = info.get(name)
            if isinstance(listed, list) and listed and all(isinstance(one, str) for one in listed):
                return listed
        if info.get("admissible_actions") is None:
            self.note(Fault.NO_EXAMPLES, where)
        return NONSENSE

    def refused(self, action: str, answer: Answer, where: str) -> None:
        """Note an admissible action that came back as invalid."""
        if answer.info.get("valid") is False:
            self.note(Fault.ADMISSIBLE_REFUSED, f"{where}, {shown(action)}")

    # The parts of the contract.

    def record(self) -> None:
        """Random play in one instance: the episodes that all else is compared with."""
        env = self.instance(0)
        before = _global_generators()
        for seed in self.seeds:
            self.episodes.append(self.random_play(env, seed))
        if _global_generators() != before:
            self.note(Fault.GLOBAL_RANDOM, "after random play the global generators have moved")
        if not any(episode.answers[-1].over for episode in self.episodes):
            self.note(Fault.NEVER_ENDS, f"none of {len(self.seeds)} within {self.max_steps} steps")
        starts = [episode.answers[0] for episode in self.episodes]
        if _all_alike(starts):
            self.note(Fault.SEEDS_ALL_ALIKE, f"seeds 0 to {len(starts) - 1}")

    def random_play(self, env: Environment, seed: int) -> Episode:
        """One episode of random actions, and what happens after its end."""
        chooser = random.Random(seed)
        given = [self.reset(env, seed=seed)]
        kept = [deepcopy(given[0])]
        actions: list[str] = []
        while not given[-1].over and len(actions) < self.max_steps:
            where = f"seed {seed}, step {len(actions)}"
            choices = self.choices(given[-1].info, where)
            action = chooser.choice(choices)
            started = time.perf_counter()
            answer = self.step(env, action, where)
            self.seconds += time.perf_counter() - started
            if choices is given[-1].info.get("admissible_actions"):
                self.refused(action, answer, where)
            actions.append(action)
            given.append(answer)
            kept.append(deepcopy(answer))
        for number, (now, then) in enumerate(zip(given, kept, strict=True)):
            if (what := difference(then, now)) is not None:
                self.note(Fault.INFO_CHANGES_LATER, f"seed {seed}, answer {number}: {what}")
        if kept[-1].over:
            self.after_end(env, f"seed {seed}, after the end")
        return Episode(seed, actions, kept)

    def after_end(self, env: Environment, where: str) -> None:
        """Twice, for some environments only notice once."""
        for _ in range(2):
            try:
                answer = env.step("look")
            except EpisodeOverError:
                continue
            except Exception as error:
                self.note(Fault.STEP_AFTER_END, f"{where}, step raises {said(error)}")
                continue
            self.note(Fault.STEP_AFTER_END, f"{where}, step answers {shown(answer)}")
            if isinstance(answer, tuple) and len(answer) == 5 and answer[1]:
                self.note(Fault.REWARD_AFTER_END, f"{where}, the reward is {shown(answer[1])}")

    def compare_instances(self) -> None:
        """The same episodes in another instance, the last one first, and again in that one."""
        env = self.instance(1)
        for episode in [*reversed(self.episodes), *self.episodes[-1:]]:
            start = self.reset(env, seed=episode.seed)
            if (what := difference(episode.answers[0], start)) is not None:
                self.note(Fault.UNEQUAL_STARTS, f"seed {episode.seed}: {what}")
                continue
            self.same_way(env, episode, 0, Fault.NOT_DETERMINISTIC)

    def same_way(
        self, env: Environment, episode: Episode, first: int, fault: Fault, where: str = ""
    ) -> bool:
        """Play an episode on from step ``first``: whether every answer is the recorded one."""
        for number in range(first, len(episode.actions)):
            here = f"{where}seed {episode.seed}, step {number}"
            answer = self.step(env, episode.actions[number], here)
            if (what := difference(episode.answers[number + 1], answer)) is not None:
                self.note(fault, f"{here}: {what}")
                return False
        return True

    def compare_interleaved(self) -> None:
        """The first episode again, while another instance plays the last one between its steps."""
        if not self.deterministic:
            return
        episode, other = self.episodes[0], self.episodes[-1]
        env, beside = self.instance(0), self.instance(1)
        answer = self.reset(env, seed=episode.seed)
        self.reset(beside, seed=other.seed)
        theirs = iter(other.actions)
        for number, then in enumerate(episode.answers):
            if number > 0:
                answer = self.step(env, episode.actions[number - 1], "beside another instance")
            if (what := difference(then, answer)) is not None:
                self.note(Fault.INSTANCES_DISTURB, f"seed {episode.seed}, answer {number}: {what}")
                return
            if (another := next(theirs, None)) is not None:
                self.step(beside, another, "beside another instance")

    def compare_processes(self) -> None:
        """The first episode again in a new process."""
        if not self.deterministic:
            return
        episode = self.episodes[0]
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as process:
            work = process.submit(_answers, self.factory, episode.seed, list(episode.actions))
            try:
                answers = work.result()
            except Exception as error:
                self.note(Fault.PROCESSES_DIFFER, f"in a new process: {said(error)}")
                return
        for number, (then, now) in enumerate(zip(episode.answers, answers, strict=True)):
            if (what := difference(then, now)) is not None:
                self.note(Fault.PROCESSES_DIFFER, f"seed {episode.seed}, answer {number}: {what}")
                return

    def before_reset(self) -> None:
        """A step in an instance that was never reset."""
        try:
            answer = self.instance(2).step("look")
        except EpisodeOverError:
            return
        except _Stop:
            raise
        except Exception as error:
            self.note(Fault.STEP_BEFORE_RESET, f"step raises {said(error)}")
            return
        self.note(Fault.STEP_BEFORE_RESET, f"step answers {shown(answer)}")

    def without_seed(self) -> None:
        """A reset without arguments."""
        self.reset(self.instance(0), Fault.RESET_WITHOUT_SEED_FAILS)

    def listed_actions(self) -> None:
        """Actions listed at the start, each tried: at most 20, spread over the list."""
        first = self.episodes[0]
        choices = self.choices(first.answers[0].info, "at the start")
        if choices is not first.answers[0].info.get("admissible_actions"):
            return
        for action in _spread(choices, 20):
            self.reset(self.instance(0), seed=first.seed)
            answer = self.step(self.instance(0), action, "at the start")
            self.refused(action, answer, "at the start")

    def hostile_actions(self) -> None:
        """Every strange text alone, and as part of an action that the environment knows."""
        first = self.episodes[0]
        known = self.choices(first.answers[0].info, "at the start")[0]
        for name, text in HOSTILE.items():
            for action in dict.fromkeys((text, f"{known} {text}", _with_number(known, text))):
                self.reset(self.instance(0), seed=first.seed)
                self.hostile_action(self.instance(0), action, name)

    def hostile_action(self, env: Environment, action: str, name: str) -> None:
        """One strange text."""
        where = f"{name} in {shown(action)}"
        started = time.perf_counter()
        try:
            raw = env.step(action)
        except Exception as error:
            self.note(Fault.HOSTILE_TEXT_CRASHES, f"{where}: {said(error)}")
            return
        if (took := time.perf_counter() - started) > self.patience:
            self.note(Fault.HOSTILE_TEXT_SLOW, f"{where}: {took:.1f} seconds")
        answer = self.five(raw, where)
        spoilt = [text for _, text in texts(answer) if not is_unicode(text)]
        if spoilt or not isinstance(answer.observation, str):
            what = shown(spoilt[0] if spoilt else answer.observation)
            self.note(Fault.HOSTILE_TEXT_COMES_BACK, f"{where}: {what}")

    def task_numbers(self) -> None:
        """Tasks by number: the first, the last, some between, and those that do not exist."""
        one, other = self.instance(0), self.instance(1)
        count = one.tasks
        if count is None:
            return
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            self.note(Fault.BAD_TASK_COUNT, f"tasks is {shown(count)}")
            return
        numbers = _spread(range(count), 8)
        starts = [self.begin(one, number) for number in numbers]
        # The other way round, so that what one task leaves behind shows in the next.
        for number, start in zip(reversed(numbers), reversed(starts), strict=True):
            if (what := difference(start, self.begin(other, number))) is not None:
                self.note(Fault.TASK_NUMBERS_CHANGE, f"task {number}: {what}")
        if _all_alike(starts):
            self.note(Fault.TASKS_ALL_ALIKE, f"tasks {', '.join(map(str, numbers))}")
        for number in (-1, count):
            try:
                one.reset(seed=0, options={"task": number})
            except ValueError:
                continue
            except Exception as error:
                self.note(Fault.TASK_OUT_OF_RANGE, f"task {number} of {count}: {said(error)}")
                continue
            self.note(Fault.TASK_OUT_OF_RANGE, f"task {number} of {count} begins an episode")

    def begin(self, env: Environment, task: int) -> Answer:
        """Begin a task by its number."""
        return self.reset(env, Fault.TASK_REFUSED, seed=0, options={"task": task})

    def going_back(self) -> None:
        """A snapshot at the start, on the way and at the end; restored here and elsewhere."""
        if not self.deterministic:
            return
        env, elsewhere = branching(self.instance(0)), branching(self.instance(2))
        native = isinstance(self.instance(0), Branching)
        self.goes_back = "snapshot" if native else "replay"
        if not native:
            self.note(Fault.BY_REPLAY, "it has no snapshot and restore")
        episode = max(self.episodes, key=lambda one: len(one.actions))
        length = len(episode.actions)
        for moment in dict.fromkeys((0, length // 2, length)):
            where = f"snapshot after {moment} steps, "
            self.reset(env, seed=episode.seed)
            for action in episode.actions[:moment]:
                self.step(env, action, where)
            snapshot = self.snapshot(env, where)
            if (
                self.same_way(env, episode, moment, Fault.SNAPSHOT_DIFFERS, where)
                and self.restore(env, snapshot, Fault.SNAPSHOT_DIFFERS, episode.answers[moment])
                and self.same_way(env, episode, moment, Fault.SNAPSHOT_DIFFERS, where)
                and self.restore(elsewhere, snapshot, Fault.SNAPSHOT_TIED, episode.answers[moment])
                and self.same_way(elsewhere, episode, moment, Fault.SNAPSHOT_TIED, where)
                and episode.answers[-1].over
            ):
                self.after_end(elsewhere, f"{where}restored, after the end")

    def snapshot(self, env: Branching, where: str) -> Any:
        """A snapshot after a journey through pickle, if it survives that."""
        try:
            snapshot = env.snapshot()
        except Exception as error:
            self.note(Fault.SNAPSHOT_DIFFERS, f"{where}{said(error)}")
            raise _Stop from error
        try:
            return pickle.loads(pickle.dumps(snapshot))
        except Exception as error:
            self.note(Fault.SNAPSHOT_NOT_PICKLED, f"{where}{said(error)}")
            return snapshot

    def restore(self, env: Branching, snapshot: Any, fault: Fault, then: Answer) -> bool:
        """Whether a restored moment is the recorded one."""
        try:
            observation, info = env.restore(snapshot)
        except Exception as error:
            self.note(fault, f"restore: {said(error)}")
            return False
        now = Answer(observation, then.reward, then.terminated, then.truncated, info)
        if (what := difference(then, now)) is not None:
            self.note(fault, f"restore: {what}")
        return what is None

    def closing(self) -> None:
        """Close every instance, twice."""
        for env in self.made:
            for which in ("first", "second"):
                try:
                    env.close()
                except Exception as error:
                    self.note(Fault.CLOSE_FAILS, f"the {which} time: {said(error)}")


def _answers(factory: Callable[[], Environment], seed: int, actions: list[str]) -> list[Answer]:
    """What a new instance says to these actions; runs in another process."""
    env = factory()
    try:
        observation, info = env.reset(seed=seed)
        start = Answer(observation, 0.0, False, False, info)
        return [start, *(Answer(*env.step(action)) for action in actions)]
    finally:
        env.close()


def _all_alike(starts: Sequence[Answer]) -> bool:
    return len(starts) > 1 and all(difference(starts[0], start) is None for start in starts)


def _spread(values: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the values, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[i * (len(values) - 1) // (most - 1)] for i in range(most)]


def _with_number(action: str, text: str) -> str:
    """The action with the text in place of its first number."""
    return re.sub(r"\d+", lambda _: text, action, count=1)


def _global_generators() -> tuple[Any, str]:
    """The states of the generators that everybody shares."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002 (to see whether somebody moves it)
    return random.getstate(), repr(numpy_state)
