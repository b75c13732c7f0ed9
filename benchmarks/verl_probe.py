"""Loaded by verl in its processes: runs the phases of each step in two ways, and notes their time.

``VERL_USE_EXTERNAL_MODULES=benchmarks.verl_probe``; a line for each run goes to the file that
``PROBE`` names.

In the way ``verl`` the trainer's own methods are those of verl, with its estimator ``grpo``, rows
carry no steps, and no fingerprints are asked for. In the way ``ascribe`` nothing is changed. The
update is of the same rows and by the same method in both. Every run begins with the rows as they
were sampled. ``own`` is the time inside Ascribe's functions in a run, in the trainer's process and
in those of the workers, for which it waits.

Rows that hold a whole episode are also learned from as steps: in the way ``steps`` there is a row
for each step of the same episodes, with the same prompt and response.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue
from tensordict import NonTensorStack
from verl.trainer.ppo import core_algos

import ascribe_lab.train.verl.plugin  # noqa: F401 (before anything of verl: it needs the platform)
from ascribe.engines.capture import Capture
from ascribe.engines.verl.engine import FINGERPRINT, FingerprintEngine, FSDPEngineWithLMHead
from ascribe.engines.verl.trainer import CreditMixin, PPOTrainerSync, SyncTrainer
from ascribe.estimators import recipe
from ascribe_lab.train.verl.packing import FIELD
from benchmarks.common import OwnTime

OWN = OwnTime(time.perf_counter)
OWN.watch_overrides(CreditMixin, PPOTrainerSync)
OWN.watch(FingerprintEngine, ("forward_step",), ours=True)
OWN.watch(FSDPEngineWithLMHead, ("forward_step",), ours=False)
OWN.watch(Capture, ("_begin", "_run", "_end"), ours=True)
ESTIMATORS = core_algos.ADV_ESTIMATOR_REGISTRY
ESTIMATORS["ascribe"] = OWN.watched(ESTIMATORS["ascribe"], ours=True)

Phase = Callable[[Any, Any, dict[str, Any]], Any]

PHASES = {
    "old_log_prob": "_compute_old_log_prob",
    "adv": "_compute_advantage",
    "update_actor": "_update_actor",
}
OURS: dict[str, Phase] = {phase: getattr(SyncTrainer, name) for phase, name in PHASES.items()}
VERLS: dict[str, Phase] = {
    **OURS,
    "adv": PPOTrainerSync._compute_advantage,
}
ASK = OWN.watched(SyncTrainer._ask_fingerprints, ours=True)
UPDATE = OWN.watched(SyncTrainer._update, ours=True)
FORWARD = FingerprintEngine.forward_step
FIRST = ("verl", "ascribe")
"""What runs in the first step, in which everything is slow."""
LATER = (("ascribe", "verl", "verl", "ascribe"), ("verl", "ascribe", "ascribe", "verl"))
"""What runs in later steps by turns: who comes first after generation is not always the same."""


class Rows:
    """A sampled batch, as it is given to every run anew."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        found = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id)
        self.fields = [str(name) for name in found.keys()]  # noqa: SIM118 (it iterates over rows)
        self.masks = found.select("response_mask", "loss_mask")
        self.extra = [dict(getattr(one, "data", one)) for one in found["extra_fields"]]

    def given(self, way: str) -> Any:
        """The batch before the first phase."""
        if way == "steps":
            return self.steps()
        kept = [
            {name: value for name, value in one.items() if way == "ascribe" or name != FIELD}
            for one in self.extra
        ]
        fields = self.masks.clone()
        fields["extra_fields"] = NonTensorStack(*kept)
        transfer_queue.kv_batch_put(
            keys=self.batch.keys, partition_id=self.batch.partition_id, fields=fields
        )
        return replace(self.batch, fields=list(self.fields))

    def steps(self) -> Any:
        """A batch with a row for each step."""
        batch = self.given("ascribe")
        found = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id)
        keys, rows, tags = [], [], []
        for place, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
            if tag.get("is_padding"):
                continue
            whole = found[place]
            fields = {name: whole[name] for name in self.fields}
            facts = json.loads(self.extra[place][FIELD])
            for number, step in enumerate(facts["steps"]):
                turn, (start, end) = list(facts["spans"].items())[number]
                own = {**facts, "steps": [step], "spans": {turn: [0, end - start]}}
                rows.append(
                    _step_row(fields, start, end)
                    | {"extra_fields": {**self.extra[place], FIELD: json.dumps(own)}}
                )
                sizes = [rows[-1][name].numel() for name in ("prompts", "responses")]
                lengths = dict(zip(("prompt_len", "response_len"), sizes, strict=True))
                tags.append({**tag, **lengths, "seq_len": sum(sizes)})
                keys.append(f"{key.rsplit('_', 1)[0]}_{1000 + number}")
        # Not before: verl must be loaded after the platform.
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict  # noqa: PLC0415

        transfer_queue.kv_batch_put(
            keys=keys,
            partition_id=batch.partition_id,
            fields=list_of_dict_to_tensordict(rows),
            tags=tags,
        )
        return replace(batch, keys=keys, tags=tags)


def _step_row(fields: dict[str, Any], start: int, end: int) -> dict[str, Any]:
    """The fields of one step: its tokens from ``start`` to ``end`` of the response."""
    ids = torch.cat([fields["prompts"], fields["responses"][:end]])
    row = {
        name: value[start:end]
        for name, value in fields.items()
        if name in {"responses", "response_mask", "loss_mask", "rm_scores", "rollout_log_probs"}
    }
    before = {name: value for name, value in fields.items() if name not in row}
    size = fields["prompts"].numel() + start
    positions = torch.arange(ids.numel())
    return before | row | {"prompts": ids[:size], "input_ids": ids, "position_ids": positions}


def run(trainer: Any, way: str, rows: Rows, metrics: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """All phases in one way: the batch after them, and the seconds of each."""
    batch, seconds = rows.given(way), {}
    trainer.bare = way == "verl"
    OWN.lap()
    before = own_of_workers()
    with estimator(trainer, "grpo" if way == "verl" else "ascribe"):
        for phase, work in (VERLS if way == "verl" else OURS).items():
            if way == "verl":
                batch.fields = [name for name in batch.fields if name != FINGERPRINT]
            started = time.perf_counter()
            batch = work(trainer, batch, metrics)
            seconds[phase] = time.perf_counter() - started
    return batch, seconds | {"own": OWN.lap() + own_of_workers() - before}


def own_of_workers() -> float:
    """The seconds that a worker has noted so far; the most, if there are several."""
    files = Path(os.environ["PROBE"]).parent.glob("own-*")
    return max((sum(map(float, file.read_text().split())) for file in files), default=0.0)


def forward_step(*given: Any, **options: Any) -> Any:
    """As the engine's; in a file of this worker, how long Ascribe's part of it took."""
    OWN.lap()
    output = FORWARD(*given, **options)
    with Path(os.environ["PROBE"]).with_name(f"own-{os.getpid()}").open("a") as lines:
        lines.write(f"{OWN.lap()}\n")
    return output


def update(trainer: Any, work: Any, batch: Any) -> Any:
    """As the trainer's; the workers' part is not our own."""
    return UPDATE(trainer, OWN.watched(work, ours=False), batch)


@contextmanager
def estimator(trainer: Any, name: str) -> Iterator[None]:
    """Inside, this is ``algorithm.adv_estimator``."""
    algorithm = trainer.config.algorithm
    before, algorithm.adv_estimator = algorithm.adv_estimator, name
    try:
        yield
    finally:
        algorithm.adv_estimator = before


def in_both_ways(trainer: Any, batch: Any, metrics: dict[str, Any]) -> Any:
    """Stands for all phases of a step."""
    rows, number = Rows(batch), trainer.global_steps
    ways = FIRST if number == 1 else LATER[number % 2]
    if "STEPS" in os.environ and number % 2 == 0:
        ways = (*ways, "steps")
    with Path(os.environ["PROBE"]).open("a") as lines:
        for way in ways:
            learned, seconds = run(trainer, way, rows, metrics)
            tokens = sum(tag["seq_len"] for tag in learned.tags)
            told = {"step": number, "way": way, "rows": len(learned), "tokens": tokens, **seconds}
            if way == "steps":
                apart, together = gigpo(trainer, learned), gigpo(trainer, batch)
                told["largest"] = float(np.abs(together).max())
                told["difference"] = float(np.abs(apart - together).max())
                transfer_queue.kv_clear(keys=learned.keys, partition_id=learned.partition_id)
            else:
                batch = learned
            lines.write(json.dumps(told) + "\n")
    return batch


def gigpo(trainer: Any, batch: Any) -> Any:
    """The advantage of each step by a recipe that needs no fingerprints.

    Invalid actions cost something, since so small a model may win nothing in a step.
    """
    steps = copy(trainer.steps)
    steps.recipe = recipe("gigpo", invalid_penalty=0.1)
    return steps.credit(batch, None, None, {}, version=trainer.global_steps - 1)[0].advantage


def ask_fingerprints(trainer: Any, score: Any, batch: Any) -> Any:
    """As the trainer's, unless verl is alone."""
    score = OWN.watched(score, ours=False)
    return score(batch) if trainer.bare else ASK(trainer, score, batch)


def done(_: Any, batch: Any, metrics: dict[str, Any]) -> Any:  # noqa: ARG001 (verl names it)
    """The phase has run already."""
    return batch


SyncTrainer._ask_fingerprints = ask_fingerprints
SyncTrainer._update = update
FingerprintEngine.forward_step = forward_step
SyncTrainer._compute_old_log_prob = in_both_ways
SyncTrainer._compute_advantage = done
SyncTrainer._update_actor = done
