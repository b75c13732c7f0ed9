"""``warm_up``: a short supervised start, for models that do not speak an environment's language.

Reinforcement learning improves what a policy does sometimes. A small model that never gives a valid
action earns nothing in any episode, and there is nothing to compare.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ascribe.engines.lessons import Demonstration, lessons
from ascribe.engines.supervised import Schedule, teach
from ascribe.models import TransformersPolicy
from ascribe.models.loading import load_causal_lm, load_smollm2, save_model
from ascribe.rollout import Plan, Sampling, Setup, Success, rollout, success

Report = Callable[[str, float], None]
"""Told what is being done, and which share of it is."""


@dataclass(frozen=True)
class Trial:
    """How a model is tried before and after.

    Attributes:
        tasks: so many of the first tasks are played, once each; as ``ascribe eval`` does.
        options: of the environment, where they differ: ``{"split": "eval"}``.
        sampling: how answers are drawn.
        max_turns: decisions after which an episode is cut; None: the environment's limit.
        seed: of the tasks.
    """

    tasks: int
    options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=lambda: Sampling(0.4, max_tokens=64))
    max_turns: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Warmup:
    """What came of a warm-up."""

    lessons: int
    """Decisions that were learned from."""
    tokens: int
    """Tokens of their answers."""
    losses: tuple[float, ...]
    """Of each step, before its update: the mean surprise at a token of the answers, in nats."""
    before: Success | None
    after: Success | None

    @property
    def first_loss(self) -> float:
        """Mean of the first tenth of the steps."""
        return self._mean(slice(None, self._tenth))

    @property
    def last_loss(self) -> float:
        """Mean of the last tenth of the steps."""
        return self._mean(slice(-self._tenth, None))

    @property
    def _tenth(self) -> int:
        return max(1, len(self.losses) // 10)

    def _mean(self, part: slice) -> float:
        return sum(self.losses[part]) / self._tenth


def warm_up(
    model: str | Path,
    setup: Setup,
    out: str | Path,
    *,
    demonstration: Demonstration | None = None,
    schedule: Schedule | None = None,
    trial: Trial | None = None,
    context: int | None = None,
    device: str = "cpu",
    report: Report = lambda _what, _share: None,
) -> Warmup:
    """Play lessons, train a model on them in single precision, and write it.

    Args:
        model: a model folder, or ``smollm2``.
        setup: the environment, its options, and the style of prompts.
        out: folder to write, which TRL, vLLM and ``load_causal_lm`` read.
        demonstration: who teaches, and how many episodes.
        schedule: how long and how fast to learn.
        trial: if given, the model is tried before and after.
        context: leave out lessons with more tokens than this.
        device: where to train.
        report: told about progress.

    Raises:
        ValueError: if the environment cannot teach, or the folder to write is not empty.
        ImportError: without the extra ``actor``.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is there already, and not an empty folder")
    setup.facts, setup.agent  # noqa: B018 (what is wrong with them shows before a model is loaded)
    network, tokenizer = load_smollm2() if model == "smollm2" else load_causal_lm(model)
    network.to(device)
    policy = TransformersPolicy(network, tokenizer, context=context)
    demonstration = demonstration or Demonstration()
    shown = lessons(setup, policy.chat, demonstration, _part(report, "lessons"))
    before = None if trial is None else _try(setup, policy, trial, _part(report, "before"))
    losses = teach(network, shown, schedule or Schedule(), _part(report, "learning"))
    after = None if trial is None else _try(setup, policy, trial, _part(report, "after"))
    save_model(network, tokenizer, out)
    tokens = sum(len(lesson.response) for lesson in shown)
    return Warmup(len(shown), tokens, tuple(losses), before, after)


def _part(report: Report, what: str) -> Callable[[float], None]:
    return lambda share: report(what, share)


def _try(
    setup: Setup, policy: TransformersPolicy, trial: Trial, progress: Callable[[float], None]
) -> Success:
    setup = replace(setup, options={**setup.options, **trial.options})
    count = setup.facts[0]
    tasks = range(trial.tasks if count is None else min(trial.tasks, count))
    turns = setup.turns(trial.max_turns)
    plan = Plan(len(tasks), 1, turns, trial.seed, tasks=tasks, sampling=trial.sampling)
    with setup.open_pool(len(tasks)) as pool:
        found = success(rollout(plan, pool, setup.agent, policy, progress=progress))
    if not found:
        raise ValueError("no episode of the trial was completed")
    return found[-1]
