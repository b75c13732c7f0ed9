"""``train_in_rounds``: pivots that are selected again every few iterations, as the policy changes.

Pivots belong to the policy that was profiled, and they go stale. A round profiles the current
policy, keeps the turns whose outcomes are mixed now, and trains from the last checkpoint for so
many iterations. All rounds are one run: optimiser, metrics and the reference model stay the same.

``rounds/round_N`` in the output folder holds what a round did. A finished round is not repeated; an
interrupted one continues, and no response is sampled twice.
"""

import gc
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from ascribe.steps.atomic import write_file
from ascribe.steps.errors import InputError
from ascribe_lab.pivots import (
    LAMBDA_DIFF,
    Candidate,
    ProfileTask,
    make_verifier,
    profile_in_worker,
    read_responses,
    read_turns,
    score,
    select,
    write_pivots,
    write_turns,
)
from ascribe_lab.pivots.environment import verifier_of
from ascribe_lab.pivots.verifiers import Spec
from ascribe_lab.train.config import Config, ConfigError
from ascribe_lab.train.launch import train
from ascribe_lab.train.resolve import MODEL, start_folder

ENVIRONMENT = "pivots"
FOLDER = "rounds"
PIVOTS = "pivots.jsonl"
"""In the output folder: the current pivots. In the folder of a round: those it selected."""
DONE = "round.json"


@checked(frozen=True)
class Rounds:
    """How pivots are chosen, and how often.

    Attributes:
        every: iterations of a round.
        k: responses to each candidate.
        threshold: keep turns with a mean reward below this, λ_diff.
        sample: profile so many candidates, drawn anew in each round; None: all of them.
        batch: responses that are sampled at once.
        backend: runs the model that is profiled: ``transformers`` or ``vllm``.
    """

    every: int = Field(ge=1)
    k: int = Field(default=8, ge=2)
    threshold: float = LAMBDA_DIFF
    sample: int | None = Field(default=None, ge=1)
    batch: int = Field(default=64, ge=1)
    backend: str = "transformers"


@dataclass(frozen=True)
class Round:
    """The result of a round."""

    number: int
    candidates: int
    """Turns that were profiled."""
    answers: int
    """Responses to all of them."""
    mean: float
    """Mean reward of a response."""
    kept: int
    left_out: dict[str, int]
    iterations: int
    """Of the run, after the round."""


def train_in_rounds(
    config: Config,
    engine: str,
    rounds: Rounds,
    *,
    resume: bool = False,
    on_round: Callable[[Round], None] = lambda _: None,
) -> list[Round]:
    """Train on the pivots of a file of candidates; ends early if a round finds none.

    Args:
        config: the run; ``environment.options.file`` names the candidates.
        engine: a key of ``ENGINES``.
        rounds: how pivots are chosen.
        resume: continue the rounds in the output folder, if there are any.
        on_round: called with the result of each round, also of those that were finished before.

    Raises:
        ValueError: as ``train``, and for configs that cannot be trained in rounds.
        ProfilingError: if the model cannot be profiled; its responses so far are kept.
    """
    refuse_rounds(config)
    folder = Path(config.output.folder).absolute()
    _take_folder(folder / FOLDER, rounds, resume=resume)
    candidates = read_turns(config.environment.options["file"])
    spec: Spec | None = config.environment.options.get("verifier")
    spec = verifier_of(candidates) if spec is None else spec
    results: list[Round] = []
    ends = [*range(rounds.every, config.update.iterations, rounds.every), config.update.iterations]
    for number, iterations in enumerate(ends):
        place = folder / FOLDER / f"round_{number}"
        record = place / DONE
        if record.exists():
            result = Round(**json.loads(record.read_text(encoding="utf-8")))
        else:
            place.mkdir(exist_ok=True)
            turns: Sequence[Candidate] = candidates.candidates
            if rounds.sample is not None:
                random = np.random.default_rng([config.update.seed, number])
                places = random.permutation(len(turns))[: rounds.sample]
                turns = [turns[index] for index in sorted(places.tolist())]
            write_turns(place / "candidates.jsonl", turns, candidates.kind, candidates.facts)
            # In the first round the model at the start, then the current one.
            model = folder / MODEL if number else start_folder(config)
            task = _profile_task(config, rounds, place, model)
            profile_in_worker(task)
            result = _select(turns, task, spec, rounds, number)
            if result.kept:
                train(_round_config(config, place, spec, iterations), engine, resume=True)
                gc.collect()  # the engine's model, before another one is loaded
                result = replace(result, iterations=iterations)
            write_file(record, json.dumps(asdict(result)))
        on_round(result)
        results.append(result)
        if not result.kept:
            break
    return results


def refuse_rounds(config: Config) -> None:
    """Refuse a config that cannot be trained in rounds."""
    if config.environment.name != ENVIRONMENT:
        raise ConfigError(f"environment.name: must be {ENVIRONMENT}, not {config.environment.name}")
    if config.update.schedule != "constant":
        raise ConfigError("update.schedule: must be constant, since rounds follow each other")
    if not config.output.save_every:
        raise ConfigError("output.save_every: must be above 0: a round begins with a checkpoint")
    if config.evaluation.tasks:
        raise ConfigError("evaluation.tasks: leave it empty: a round begins with the last model")
    if config.model.lora is not None:
        raise ConfigError("model.lora: adapters alone cannot be profiled: train all weights")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("rounds need a single process: start it without a launcher")


def _take_folder(folder: Path, rounds: Rounds, *, resume: bool) -> None:
    """Write the settings of the rounds, unless the folder holds other rounds."""
    record = folder / "rounds.json"
    if record.exists():
        if not resume:
            raise ConfigError(
                f"output.folder: {folder.parent} holds rounds: resume, or name another"
            )
        before = json.loads(record.read_text(encoding="utf-8"))
        if before != asdict(rounds):
            raise InputError(f"the rounds to resume had other settings: {before}")
    folder.mkdir(parents=True, exist_ok=True)
    write_file(record, json.dumps(asdict(rounds)))


def _profile_task(config: Config, rounds: Rounds, place: Path, model: Path) -> ProfileTask:
    """Profile with the sampling of training."""
    rollout = config.rollout
    return ProfileTask(
        str(place / "candidates.jsonl"),
        str(place / "answers.jsonl"),
        str(model),
        rounds.k,
        rounds.batch,
        rollout.temperature,
        rollout.top_p,
        rollout.max_tokens,
        rollout.stop,
        backend=rounds.backend,
        dtype=rollout.dtype or config.model.dtype,
        context=rollout.context,
        label=place.name.replace("_", " "),
    )


def _select(
    turns: Sequence[Candidate], task: ProfileTask, spec: Spec, rounds: Rounds, number: int
) -> Round:
    """Score the responses, and write the pivots into the folder of the round."""
    responses = list(read_responses(task.journal, task.reference))
    scored = score(turns, responses, make_verifier(spec), rounds.k)
    selection = select(scored, rounds.threshold)
    if selection.kept:
        facts = {  # as ascribe pivots select writes them
            "model": task.reference.model,
            "sampling": task.reference.label,
            "k": task.k,
            "verifier": spec,
            "threshold": rounds.threshold,
        }
        write_pivots(Path(task.journal).parent / PIVOTS, selection.kept, facts)
    rewards = [reward for one in scored for reward in one.rewards]
    return Round(
        number,
        len(turns),
        len(responses),
        sum(rewards) / max(1, len(rewards)),
        len(selection.kept),
        selection.counts,
        number * rounds.every,
    )


def _round_config(config: Config, place: Path, spec: Spec, iterations: int) -> Config:
    """The run up to so many iterations, on the pivots of a round."""
    # The file's name stays the same, since a resumed run must have the same config.
    current = place.parents[1] / PIVOTS
    write_file(current, (place / PIVOTS).read_bytes())
    environment = config.environment
    options = {**environment.options, "file": str(current), "verifier": spec}
    return replace(
        config,
        environment=replace(environment, options=options),
        update=replace(config.update, iterations=iterations),
    )
