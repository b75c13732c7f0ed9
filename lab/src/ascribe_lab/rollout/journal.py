"""``play_to_file``: a rollout that is written to a file, and resumes if it was interrupted.

Every episode that ends is checked and goes into a journal beside the file at once, so that a late
failure (a server, a full disk, a kill) loses only the episodes that were running. The same call
then plays the rest. When the file is in place, the journal is removed. An episode that failed for
good is not in the journal, so it is tried again.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.steps.atomic import replacing
from ascribe.steps.check import check
from ascribe.steps.errors import InputError
from ascribe.steps.lines import LONGEST_LINE
from ascribe.steps.problems import Severity, TableError, one_line, replace_surrogates
from ascribe_lab.json_journal import JournalError, open_journal, read_journal
from ascribe_lab.models.policy import Sample
from ascribe_lab.rollout.episode import FailurePolicy, Step
from ascribe_lab.rollout.record import States, arrow, save, table
from ascribe_lab.rollout.run import Clock, Place, Plan, Progress, Rollout, Trajectory
from ascribe_lab.rollout.setup import Model, Setup, play

KIND = "ascribe rollout 1"
"""What the first line of a journal says that it is."""
NO_TIME = Clock(0.0, 0.0, 0.0, 0)


def journal_beside(out: str | Path) -> Path:
    """The journal of a rollout that is written to this file."""
    return Path(f"{out}.journal")


def play_to_file(
    setup: Setup,
    model: Model,
    plan: Plan,
    out: str | Path,
    *,
    states: States = "observation",
    failures: FailurePolicy | None = None,
    progress: Progress = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Rollout:
    """Play a plan, or the rest of it, and write it to a file unless no episode was completed.

    Args:
        setup: the environment; its pool and its limits may differ when a rollout is resumed.
        model: the policy.
        plan: which episodes.
        out: a file that ends in ``.parquet``, ``.jsonl`` or ``.jsonl.gz``.
        states: what the column ``state`` holds.
        failures: what to do about episodes that fail.
        progress: called with the share of episodes that are over.
        on_message: called with a line about what is resumed.

    Raises:
        JournalError: if the journal beside the file is of another rollout, is damaged, or another
            process is writing it.
        OSError: if the file cannot be written; before anything is played if that can be known.
    """
    out = Path(out)
    if out.exists() and not out.is_file() and not out.is_dir():  # a pipe or a device
        played = play(setup, model, plan, failures=failures, progress=progress)
        save(played, out, states)
        return played
    with suppress(_WritableError), replacing(out):
        raise _WritableError
    path = journal_beside(out)

    def refuse_to_wait() -> None:
        raise JournalError(f"another rollout is writing {out}: wait for it, or write elsewhere")

    with open_journal(path, refuse_to_wait) as append:
        try:
            settings = _settings(setup, model, plan)
            done = dict(_read(path, settings, plan, states))
            if done:
                total = plan.groups * plan.size
                on_message(f"Resuming with {len(done):,} of {total:,} episodes from {path}.")

            has_header = next(read_journal(path), None) is not None

            def keep(finished: Mapping[Place, Trajectory]) -> dict[Place, str]:
                nonlocal has_header
                problems = {place: _problem(one, states) for place, one in finished.items()}
                records = [
                    _record(place, one) for place, one in finished.items() if not problems[place]
                ]
                lines = [record for record in records if record is not None]
                if lines and not has_header:
                    lines.insert(0, {"journal": KIND, "settings": settings})
                    has_header = True
                append(lines)
                return {place: problem for place, problem in problems.items() if problem}

            if len(done) == plan.groups * plan.size:  # it only was not written
                played = Rollout(tuple(done[key] for key in sorted(done)), (), (), NO_TIME, 0)
            else:
                played = play(
                    setup, model, plan, failures=failures, progress=progress, done=done, keep=keep
                )
            if played.trajectories:
                save(played, out, states)
                path.unlink()
        finally:
            if path.exists() and not path.stat().st_size:
                path.unlink()
    return played


class _WritableError(Exception):
    """Ends a draft of the output that was only made to see that it can be; never seen outside."""


def _settings(setup: Setup, model: Model, plan: Plan) -> dict[str, Any]:
    """All that decides what the episodes are, by name, as JSON gives it back."""
    values = {name: getattr(setup, name) for name in ("environment", "options", "style")}
    values |= {f"model {name}": value for name, value in asdict(model).items()}
    values |= asdict(plan) | {"tasks": None if plan.tasks is None else list(plan.tasks)}
    settings: dict[str, Any] = json.loads(json.dumps(values, default=repr))
    return settings


def _problem(trajectory: Trajectory, states: States) -> str | None:
    """Why a file cannot hold an episode, or ``check`` would refuse it; None if all is well."""
    rollout = Rollout((trajectory,), (), (), NO_TIME, 0)
    try:
        problems = check(table(rollout, states)).problems
        if fatal := [each for each in problems if each.severity is Severity.FATAL]:
            raise TableError(fatal)
        arrow(rollout, states)
    except (ValueError, TypeError, OverflowError) as error:
        return one_line(error, 300)
    return None


# Records.


def _record(place: Place, trajectory: Trajectory) -> dict[str, Any] | None:
    """The record of a finished episode; None if JSON cannot hold it or it is too long.

    Without a record the episode is played again when the rollout is resumed.
    """
    steps = [vars(step) | {"sample": vars(step.sample)} for step in trajectory.steps]
    values = {"task": trajectory.task, "family": trajectory.family, "without": trajectory.without}
    record: dict[str, Any] = {"episode": place, **values, "steps": steps}
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False, default=np.generic.item)
        # Half surrogates are replaced as in the file: JSON would join two of them to a character.
        record = json.loads(replace_surrogates(text))
    except (ValueError, TypeError):
        return None
    return record if len(json.dumps(record)) < LONGEST_LINE else None


def _read(
    path: Path, settings: dict[str, Any], plan: Plan, states: States
) -> Iterator[tuple[Place, Trajectory]]:
    """The finished episodes of a journal, by group and member."""
    records = read_journal(path)
    header = next(records, None)
    if header is None:
        return
    if header.get("journal") != KIND or not isinstance(header.get("settings"), dict):
        raise JournalError(f"{path} is no journal of a rollout: remove it, or write elsewhere")
    before = header["settings"]
    if changed := [key for key in before | settings if before.get(key) != settings.get(key)]:
        differences = ", ".join(
            f"{key} was {one_line(before.get(key))}, not {one_line(settings.get(key))}"
            for key in changed
        )
        raise JournalError(
            f"{path} has the episodes of another rollout ({differences}): resume that one, "
            "write elsewhere, or remove the journal"
        )
    for number, record in enumerate(records, 2):
        try:
            group, member = record.pop("episode")
            whole = type(group) is int and type(member) is int
            if not (whole and 0 <= group < plan.groups and 0 <= member < plan.size):
                raise InputError(f"there is no episode {group}/{member}")
            names = plan.group_name(group), plan.trajectory_name(group, member)
            trajectory = _trajectory(names, **record)
            if problem := _problem(trajectory, states):
                raise InputError(problem)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            raise JournalError(
                f"line {number} of {path} is no episode of this rollout ({one_line(error)}): "
                "remove the line, and the episode is played again"
            ) from error
        yield (group, member), trajectory


def _trajectory(
    names: tuple[str, str],
    task: str,
    family: str,
    without: list[float | None] | None,
    steps: list[dict[str, Any]],
) -> Trajectory:
    values = []
    for step in steps:
        sample = step.pop("sample")
        for name in ("prompt_ids", "response_ids", "logprobs"):
            sample[name] = tuple(sample[name])
        values.append(Step(sample=Sample(**sample), **step))
    missing = None if without is None else tuple(without)
    return Trajectory(*names, task, family, tuple(values), missing)
