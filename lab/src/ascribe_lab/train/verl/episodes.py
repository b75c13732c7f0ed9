"""``EpisodeSteps``: the steps of a run in Ascribe's own environments, and their credit."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.engines.crediting import History
from ascribe.engines.inputs import missing_columns, of_steps
from ascribe.engines.metrics import HELD_OUT, read_metrics
from ascribe.engines.verl.batch import VERSIONS, extra_fields, is_padding
from ascribe.engines.verl.loops import refuse_without_effect, updates_per_step
from ascribe.engines.verl.vectors import fingerprints
from ascribe.engines.versions import SampledVersions, Staleness
from ascribe.sessions import Spans
from ascribe.steps.arrays import Floats
from ascribe.steps.atomic import replacing_folder
from ascribe_lab.rollout.episode import RolloutFailedError
from ascribe_lab.rollout.run import Rollout
from ascribe_lab.train.episodes import columns_of, task_of
from ascribe_lab.train.iterations import (
    Iteration,
    LocalRollout,
    credit_iteration,
    iteration_metrics,
    write_rollouts,
)
from ascribe_lab.train.metrics_file import MetricsFile
from ascribe_lab.train.resolve import Run
from ascribe_lab.train.verl.packing import FIELD, unpack
from ascribe_lab.train.verl.run import BEST
from ascribe_lab.train.verl.tasks import read_run

RETURN = "eval/ascribe/return"


class EpisodeSteps:
    """The steps that ``EpisodeLoop`` sent with its rows.

    Args:
        config: verl's whole configuration; ``data.train_files`` names the run.
    """

    def __init__(self, config: Any) -> None:
        self.run = read_run(config.data.train_files)
        refuse_unsupported(config, self.run)
        self.recipe, self.layer = self.run.recipe, self.run.layer
        self.minibatches: int | None = self.run.config.update.minibatches
        self.minibatch_rows = self.run.config.update.minibatch_rows
        rollout = self.run.config.rollout
        self.staleness = Staleness(rollout.versions, rollout.stale)
        self.episodes = self.run.config.episodes // updates_per_step(config)
        """Of an update."""

    def metrics_file(self, done: int) -> Any:
        """``metrics.jsonl`` of the run, as verl's tracking takes it."""
        config = self.run.config
        return _MetricsLogger(Path(config.output.folder), done, config.update.iterations)

    def credit(
        self,
        batch: Any,
        tokenizer: Any,  # noqa: ARG002 (texts came with the steps)
        history: History,
        metrics: dict[str, Any],
        *,
        version: int,
        tokens: Mapping[str, Sequence[Floats]] | None = None,
    ) -> tuple[Iteration, Spans]:
        """Credit the episodes of a batch; as ``LoopSteps.credit``.

        Raises:
            RolloutFailedError: if an episode failed, and the run is to stop then.
        """
        texts = {
            row: one[FIELD]
            for row, (one, tag) in enumerate(zip(extra_fields(batch), batch.tags, strict=True))
            if not is_padding(tag)
        }
        rollout, spans = unpack(texts, [tag["response_len"] for tag in batch.tags])
        missing = self.episodes - len(groups_of(rollout))
        if self.run.config.rollout.failures.stop:
            if rollout.failed:
                raise RolloutFailedError(rollout.failed[0])
            if missing:
                raise RuntimeError(f"{missing} episodes raised; their errors are printed above")
        vectors = compute = None
        if self.layer is not None:
            whole = self.run.config.output.rollouts
            vectors, compute = fingerprints(batch, spans, self.recipe, whole=whole)
        played = [trajectory for trajectory in rollout.trajectories for _ in trajectory.steps]
        self.sampled = SampledVersions.of(
            [trajectory.group for trajectory in played],
            [trajectory.name for trajectory in played],
            [tuple(batch.tags[row][name] for name in VERSIONS) for row in spans.sequence],
            version,
        )
        dropped = self.staleness.dropped(self.sampled, metrics)
        columns = {name: of_steps(name, each, spans) for name, each in (tokens or {}).items()}
        config, groups = self.run.config.rollout, groups_of(rollout)
        seed, tasks = self.run.config.update.seed, None
        if config.tasks is not None:
            numbers = {name: int(name.rpartition("/")[2]) for name in groups}
            tasks = {name: task_of(n, seed, config.tasks) for name, n in numbers.items()}
        iteration = credit_iteration(
            [LocalRollout(groups, rollout, vectors, columns)],
            self.recipe,
            size=config.size,
            failures=config.failures.policy(),
            states=config.states,
            history=history,
            dropped=dropped,
            compute=compute,
            tasks=tasks,
        )
        metrics.update(iteration_metrics(iteration))
        metrics["ascribe/missing"] = missing
        return iteration, spans

    def loss_weights(self, _: Iteration, spans: Spans, __: Sequence[int]) -> Floats:
        """A row counts as the run's loss says, whatever its episode."""
        return np.ones(spans.lengths.size)

    def write(self, iteration: Iteration, number: int) -> None:
        """Write the rollouts of an update, if the run asks for them."""
        config = self.run.config
        if config.output.rollouts:
            folder = Path(config.output.folder) / "rollouts"
            columns = self.sampled.columns
            write_rollouts(iteration, folder, number, config.rollout.states, columns)


VALIDATION = {"val-aux/ascribe/won/mean@": HELD_OUT, "val-core/ascribe/reward/mean@": RETURN}
"""How verl's names for the held-out tasks begin, and ours."""


class _MetricsLogger:
    """A backend of verl's ``Tracking``, which prints a line and keeps the best model as well.

    Args:
        folder: of the run.
        done: iterations to keep.
        iterations: of the whole run.
    """

    def __init__(self, folder: Path, done: int, iterations: int) -> None:
        self.folder, self.file = folder, MetricsFile(folder, done)
        self.iterations = iterations

    def log(self, data: dict[str, Any], step: int) -> None:
        """Write a line. After an evaluation that is the best so far, copy the checkpoint."""
        metrics = dict(sorted(data.items()))
        for begin, name in VALIDATION.items():
            found = [key for key in metrics if key.startswith(begin)]
            if found:
                metrics[name] = metrics[found[0]]
        self.file.log(step, self.iterations, metrics)
        actor = self.folder / "checkpoints" / f"global_step_{step}" / "actor"
        if HELD_OUT in metrics and actor.is_dir():
            earlier = (row for row in read_metrics(self.folder) if 0 < row["iteration"] < step)
            if all(metrics[HELD_OUT] > row.get(HELD_OUT, -1.0) for row in earlier):
                with replacing_folder(self.folder / BEST) as draft:
                    without = shutil.ignore_patterns("optim_*", "extra_state_*")
                    shutil.copytree(actor, draft, ignore=without, dirs_exist_ok=True)


def groups_of(rollout: Rollout) -> tuple[str, ...]:
    """The group of each episode; corrections are not among those that were to be played."""
    episodes: list[Any] = [*rollout.trajectories, *rollout.failed]
    return tuple(one.group for one in episodes if one.corrects is None)


def refuse_unsupported(config: Any, run: Run) -> None:
    """Refuse settings that would have no effect, or give a wrong update.

    Args:
        config: verl's whole configuration.
        run: the run.

    Raises:
        ValueError: with verl's key, and what to set.
    """
    rollout = config.actor_rollout_ref.rollout
    size = run.config.rollout.size
    given = ("entropy", "value", "corrects", *columns_of(run.config.environment.name))
    missing = missing_columns(run.recipe, "verl", given)
    refuse_without_effect(
        config,
        run.recipe,
        run.layer,
        {
            f"actor_rollout_ref.rollout.n: {rollout.n}, and rollout.size of the run is {size}": (
                int(rollout.n) != size
            ),
            f"data.train_batch_size: {config.data.train_batch_size}, and rollout.groups of the run "
            f"is {run.config.rollout.groups}": (
                int(config.data.train_batch_size) != run.config.rollout.groups
            ),
            "data.shuffle: the tasks are drawn already, in an order that a resumed run must find "
            "again; set it to False": bool(config.data.shuffle),
            "trainer.test_freq and trainer.val_before_train: name the held-out tasks in "
            "evaluation.tasks": (
                not run.config.evaluation.tasks
                and (config.trainer.test_freq > 0 or config.trainer.val_before_train)
            ),
            "actor_rollout_ref.rollout.max_model_len: must be given": rollout.max_model_len is None,
            f"recipe.name: {missing}": missing is not None,
        },
    )
