"""``train_in_rounds``: pivots that are chosen anew every few iterations, as the policy moves.

Pivots are those of the policy that was profiled, and they go stale. A round asks the policy as it
is now (profile), keeps the turns that are mixed now (select), and goes on from the last checkpoint
for so many iterations. All rounds are one run: optimiser, metrics and the model at the start, from
which the KL divergence is counted, stay the same.

What a round did is in ``rounds/round_N`` of the output folder. A round that is done is not done
again; one that was stopped goes on where it was, and no answer is asked for twice.
"""

import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from ascribe.engines.config import Config, ConfigError
from ascribe.engines.resolve import MODEL, start_folder
from ascribe.engines.train import train
from ascribe.pivots import (
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
from ascribe.pivots.environment import verifier_of
from ascribe.pivots.journal import write_objects
from ascribe.pivots.profile import CostEstimate
from ascribe.pivots.verifiers import Spec

ENVIRONMENT = "pivots"
FOLDER = "rounds"
PIVOTS = "pivots.jsonl"
"""In the output folder: what is trained on now. In the folder of a round: what it chose."""
DONE = "round.json"

Estimated = Callable[[CostEstimate], None]
"""Told what is left to ask for."""


@checked(frozen=True)
class Rounds:
    """How pivots are chosen, and how often.

    Attributes:
        every: iterations of a round.
        k: answers to each candidate.
        threshold: keep turns with a mean reward below this, λ_diff.
        sample: profile so many candidates, drawn anew in each round; None: all of them.
        batch: answers that are asked for at once.
        backend: who runs the model that is profiled: ``transformers`` or ``vllm``.
    """

    every: int = Field(ge=1)
    k: int = Field(default=8, ge=2)
    threshold: float = LAMBDA_DIFF
    sample: int | None = Field(default=None, ge=1)
    batch: int = Field(default=64, ge=1)
    backend: str = "transformers"


@dataclass(frozen=True)
class Round:
    """What a round did."""

    number: int
    candidates: int
    """That were profiled."""
    answers: int
    """That they were given, all together."""
    mean: float
    """Reward of an answer."""
    kept: int
    left_out: dict[str, int]
    iterations: int
    """Of the run, when the round was over."""


def train_in_rounds(
    config: Config,
    engine: str,
    rounds: Rounds,
    *,
    resume: bool = False,
    estimated: Estimated = lambda _: None,
    told: Callable[[Round], None] = lambda _: None,
) -> list[Round]:
    """Train on the pivots of a file of candidates; ends early if a round finds none.

    Args:
        config: the run; ``environment.options.file`` names the candidates.
        engine: a key of ``ENGINES``.
        rounds: how pivots are chosen.
        resume: go on with the rounds in the output folder, if there are any.
        estimated: told what is left of a profile, before and after its first batch.
        told: told what each round did; also of those that were done before.

    Raises:
        ValueError: as ``train``, and for what cannot be done in rounds.
        ProfilingError: if the model cannot be asked; what it answered is kept.
    """
    refuse(config)
    folder = Path(config.output.folder).absolute()
    _take(folder / FOLDER, rounds, resume=resume)
    run, done = _Run(config, rounds, folder, _verifier(config)), []
    for number, iterations in enumerate(_ends(config.update.iterations, rounds.every)):
        record = run.place(number) / DONE
        if record.exists():
            found = Round(**json.loads(record.read_text(encoding="utf-8")))
        else:
            found = run.choose(number, estimated)
            if found.kept:
                train(run.learn(number, iterations), engine, resume=True)
                gc.collect()  # the engine's model, before another one is loaded
                found = replace(found, iterations=iterations)
            write_objects(record, [asdict(found)])
        told(found)
        done.append(found)
        if not found.kept:
            break
    return done


def refuse(config: Config) -> None:
    """Refuse what cannot be done in rounds.

    Raises:
        ConfigError: with the key.
    """
    if config.environment.name != ENVIRONMENT:
        raise ConfigError(f"environment.name: must be {ENVIRONMENT}, not {config.environment.name}")
    if config.update.schedule != "constant":
        raise ConfigError("update.schedule: must be constant: a round does not know of the next")
    if not config.output.save_every:
        raise ConfigError("output.save_every: must be above 0: a round begins with a checkpoint")
    if config.model.lora is not None:
        raise ConfigError("model.lora: adapters alone cannot be profiled: train all weights")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("rounds are led by one process: start one, without a launcher")


def _take(folder: Path, rounds: Rounds, *, resume: bool) -> None:
    """Write down how the rounds are made, unless there are others."""
    record = folder / "rounds.json"
    if record.exists():
        if not resume:
            raise ConfigError(
                f"output.folder: {folder.parent} holds rounds: resume, or name another"
            )
        before = json.loads(record.read_text(encoding="utf-8"))
        if before != asdict(rounds):
            raise ValueError(f"the rounds to resume were others: {before}")
    folder.mkdir(parents=True, exist_ok=True)
    write_objects(record, [asdict(rounds)])


def _ends(iterations: int, every: int) -> Iterator[int]:
    """After how many iterations each round is over."""
    yield from range(every, iterations, every)
    yield iterations


def _verifier(config: Config) -> Spec:
    given: Spec | None = config.environment.options.get("verifier")
    return verifier_of(read_turns(config.environment.options["file"])) if given is None else given


@dataclass(frozen=True)
class _Run:
    config: Config
    rounds: Rounds
    folder: Path
    spec: Spec

    def place(self, number: int) -> Path:
        """The folder of a round."""
        return self.folder / FOLDER / f"round_{number}"

    def choose(self, number: int, estimated: Estimated) -> Round:
        """Profile the model as it is, and write its pivots into the folder of the round."""
        here, given = self.place(number), read_turns(self.config.environment.options["file"])
        here.mkdir(exist_ok=True)
        turns = self._drawn(given.candidates, number)
        write_turns(here / "candidates.jsonl", turns, given.kind, given.facts)
        order = self._order(number)
        profile_in_worker(order, on_estimate=estimated)
        answers = list(read_responses(order.journal, order.reference))
        scored = score(turns, answers, make_verifier(self.spec), self.rounds.k)
        found = select(scored, self.rounds.threshold)
        if found.kept:
            write_pivots(here / PIVOTS, found.kept, self._facts(order))
        rewards = [reward for one in scored for reward in one.rewards]
        return Round(
            number,
            len(turns),
            len(answers),
            sum(rewards) / max(1, len(rewards)),
            len(found.kept),
            {kind.value: len(ones) for kind, ones in found.left_out.items()},
            number * self.rounds.every,
        )

    def learn(self, number: int, iterations: int) -> Config:
        """The run up to so many iterations, on the pivots of a round."""
        chosen, now = read_turns(self.place(number) / PIVOTS), self.folder / PIVOTS
        # The name stays the same, for the run that goes on must be the one that began.
        write_turns(now, chosen.candidates, chosen.kind, chosen.facts, chosen.profiles)
        environment = self.config.environment
        options = {**environment.options, "file": str(now), "verifier": self.spec}
        return replace(
            self.config,
            environment=replace(environment, options=options),
            update=replace(self.config.update, iterations=iterations),
        )

    def _drawn(self, turns: Sequence[Candidate], number: int) -> Sequence[Candidate]:
        if self.rounds.sample is None:
            return turns
        random = np.random.default_rng([self.config.update.seed, number])
        places = random.permutation(len(turns))[: self.rounds.sample]
        return [turns[place] for place in sorted(places.tolist())]

    def _order(self, number: int) -> ProfileTask:
        """Ask as in training; in the first round the model at the start, then as it is now."""
        here, rollout = self.place(number), self.config.rollout
        return ProfileTask(
            str(here / "candidates.jsonl"),
            str(here / "answers.jsonl"),
            str(self.folder / MODEL if number else start_folder(self.config)),
            self.rounds.k,
            self.rounds.batch,
            rollout.temperature,
            rollout.top_p,
            rollout.max_tokens,
            rollout.stop,
            backend=self.rounds.backend,
            dtype=rollout.dtype or self.config.model.dtype,
            context=rollout.context,
            label=f"round {number}",
        )

    def _facts(self, order: ProfileTask) -> dict[str, Any]:
        """What ``ascribe pivots select`` writes above pivots."""
        return {
            "model": order.reference.model,
            "sampling": order.reference.label,
            "k": order.k,
            "verifier": self.spec,
            "threshold": self.rounds.threshold,
            "chosen": "mixed outcomes, mean below the threshold",
        }
