"""``warm_up``: a short supervised start, so that a model gives valid actions in an environment.

Reinforcement learning improves what a policy does sometimes. A small model that never gives a valid
action earns nothing in any episode, and there is nothing to compare. So an expert plays episodes,
and the model learns its responses (``demonstrate``, ``finetune``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from ascribe_lab.models import Chat, ExpertPolicy, RandomPolicy, TransformersPolicy
from ascribe_lab.models.loading import load_causal_lm, load_smollm2, packages, save_model
from ascribe_lab.models.tokens import Message, PromptTooLongError
from ascribe_lab.rollout import (
    Plan,
    Request,
    Rollout,
    Sample,
    Sampling,
    SamplingPolicy,
    Setup,
    Success,
    rollout,
    success,
)
from ascribe_lab.train.chat import GrowingChat, in_layout
from ascribe_lab.train.config import Layout

Teacher = Literal["expert", "random"]
"""The environment's expert, or any admissible action."""

Progress = Callable[[float], None]
"""Called with the share that is done."""

Tensor = Any
"""A torch tensor. Torch is imported only where it is used."""


@dataclass(frozen=True)
class TrainingExample:
    """A prompt and the response to it, in tokens."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    """With the token that ends the turn."""

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


# Demonstrations.


@checked(frozen=True)
class Demonstration:
    """The episodes that examples are taken from.

    An expert that never errs shows only the states on its own way, and a model that strays once
    does not recover. So a share of its actions, the ``noise``, is replaced by random ones, while
    the examples hold the expert's own.

    Attributes:
        teacher: ``expert``, or ``random`` to teach the form of responses alone.
        episodes: how many are played; the seed draws their tasks.
        noise: share of decisions at which a random action replaces the teacher's.
        max_turns: decisions after which an episode is cut; None: the environment's limit.
        seed: of tasks and noise.
        layout: that of the training to come: with ``trajectory``, prompts are growing chats.
    """

    teacher: Teacher = "expert"
    episodes: int = Field(default=200, ge=1)
    noise: float = Field(default=0.0, ge=0, lt=1)
    max_turns: int | None = None
    seed: int = 0
    layout: Layout = "step"

    def __post_init__(self) -> None:
        if self.noise and self.teacher == "random":
            raise ValueError("noise is for the expert: random actions need no others")


class NoisyExpert:
    """A policy that records the expert's responses, and sometimes samples another.

    Args:
        expert: its responses are recorded.
        other: samples instead, now and then.
        noise: how often; the request's seed decides.
        chat: tokenises prompts and samples, for chats that grow by their tokens.
    """

    def __init__(
        self,
        expert: SamplingPolicy,
        other: SamplingPolicy,
        noise: float,
        chat: Chat | None = None,
    ) -> None:
        self.expert, self.other, self.noise, self.chat = expert, other, noise, chat
        self.recorded: list[tuple[Sequence[Message], str]] = []

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        samples = self.expert(requests, sampling)
        for number, (request, sample) in enumerate(zip(requests, samples, strict=True)):
            if sample.text:  # empty where the expert knows no action
                self.recorded.append((request.messages, sample.text))
            if np.random.default_rng([request.seed, 1]).random() < self.noise:
                samples[number] = self.other([request], sampling)[0]
            if self.chat is not None:
                samples[number] = _with_tokens(self.chat, request, samples[number])
        return samples

    def close(self) -> None:
        """Nothing to close."""


def _with_tokens(chat: Chat, request: Request, sample: Sample) -> Sample:
    """The sample with its tokens; empty, which ends the episode, if the prompt is too long."""
    try:
        prompt = chat.prompt(request.messages)
    except PromptTooLongError:
        return Sample("", finish="prompt_too_long")
    return replace(sample, prompt_ids=prompt, response_ids=_response(chat, sample.text))


def demonstrate(
    setup: Setup,
    chat: Chat,
    demonstration: Demonstration,
    progress: Progress = lambda _: None,
) -> list[TrainingExample]:
    """Play the episodes of a demonstration, and return an example for each decision.

    Examples that do not fit the model's context are left out. They are sorted by their tokens, so
    their order is the same on every pool.

    Raises:
        ValueError: if the environment has no expert, names no limit, or no example is left.
    """
    if demonstration.teacher == "expert":
        setup = setup.with_expert()
    turns = setup.turns(demonstration.max_turns)
    render = setup.agent.render
    random = RandomPolicy(render)
    teacher = ExpertPolicy(render) if demonstration.teacher == "expert" else random
    growing = GrowingChat(chat) if demonstration.layout == "trajectory" else None
    policy = NoisyExpert(teacher, random, demonstration.noise, growing)
    plan = Plan(demonstration.episodes, 1, turns, demonstration.seed)
    _play(plan, setup, policy, demonstration.layout, progress)
    examples = [_example(growing or chat, *recorded) for recorded in policy.recorded]
    fitting = [example for example in examples if example is not None]
    if not fitting:
        raise ValueError("no episode gave an example that fits the model's context")
    return sorted(fitting, key=lambda example: (example.prompt, example.response))


def _example(chat: Chat, messages: Sequence[Message], text: str) -> TrainingExample | None:
    """The prompt as in sampling, and the response with the end of the turn; None if too long."""
    try:
        prompt = chat.prompt(messages)
    except PromptTooLongError:
        return None
    response = _response(chat, text)
    fits = chat.room(prompt, len(response)) >= len(response)
    return TrainingExample(prompt, response) if fits else None


def _response(chat: Chat, text: str) -> tuple[int, ...]:
    """The tokens of a response, with the end of the turn."""
    # An action is the environment's text: it must not become a special token.
    ids = chat.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return (*ids, chat.tokenizer.eos_token_id)


def _play(plan: Plan, setup: Setup, policy: Any, layout: Layout, progress: Progress) -> Rollout:
    """Play as the training does that has this layout."""
    agent, policy = in_layout(layout, setup.agent, policy)
    with setup.open_pool(plan.groups) as pool:
        return rollout(plan, pool, agent, policy, progress=progress)


# Supervised training.


@checked(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes:
        steps: updates.
        batch: examples of an update. All are used, in a new random order, before one is again.
        learning_rate: the highest; it rises over the first tenth of the steps, then falls to 0,
            both linearly.
        max_grad_norm: a longer gradient is cut to this length.
        most_tokens: tokens, padding included, that go through the model at once; it bounds memory
            and does not change the update.
        seed: of the order.
    """

    steps: int = Field(default=20, ge=1)
    batch: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=5e-5, gt=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    most_tokens: int = Field(default=1024, ge=1)
    seed: int = 0

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0: min((t+1)/r, (T-t)/(T-r+1)) of the highest.

        T is the number of steps and r a tenth of it, at least 1.
        """
        ramp = max(1, self.steps // 10)
        share = min((step + 1) / ramp, (self.steps - step) / (self.steps - ramp + 1))
        return self.learning_rate * share


def finetune(
    model: Any,
    examples: Sequence[TrainingExample],
    schedule: Schedule,
    progress: Progress = lambda _: None,
) -> list[float]:
    """Train a model on examples, in place, with AdamW; returns the loss of each step before it.

    The loss of a batch is the mean over its response tokens of -log p(token | all before it).

    Args:
        model: a causal language model, on the device and in the type it is to be trained in.
        examples: at least one.
        schedule: how long and how fast.
        progress: called with the share of steps that are done.
    """
    torch, _ = packages("actor")
    optimizer = torch.optim.AdamW(model.parameters(), lr=schedule.learning_rate, weight_decay=0.0)
    losses = []
    with _training_mode(model, schedule.seed):
        for step, batch in zip(range(schedule.steps), _batches(examples, schedule), strict=False):
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(step)
            tokens = sum(len(example.response) for example in batch)
            losses.append(0.0)
            for chunk in _chunks(batch, schedule.most_tokens):
                loss = _loss(model, chunk) / tokens
                loss.backward()
                losses[-1] += float(loss.detach())
            torch.nn.utils.clip_grad_norm_(model.parameters(), schedule.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            progress((step + 1) / schedule.steps)
    return losses


@contextmanager
def _training_mode(model: Any, seed: int) -> Iterator[None]:
    """Training mode, seeded; on a CPU with eager attention, which trains twice as fast as sdpa."""
    torch, _ = packages("actor")
    devices = [model.device] if model.device.type == "cuda" else []
    attention = model.config._attn_implementation
    if model.device.type == "cpu":
        model.set_attn_implementation("eager")
    model.train()
    try:
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield
    finally:
        model.eval()
        model.set_attn_implementation(attention)


def _batches(
    examples: Sequence[TrainingExample], schedule: Schedule
) -> Iterator[list[TrainingExample]]:
    """Batches without end."""
    waiting: list[int] = []
    for epoch in count():
        order = np.random.default_rng([schedule.seed, epoch]).permutation(len(examples))
        waiting += order.tolist()
        while len(waiting) >= schedule.batch:
            batch, waiting = waiting[: schedule.batch], waiting[schedule.batch :]
            yield [examples[number] for number in batch]


def _chunks(batch: Sequence[TrainingExample], most_tokens: int) -> Iterator[list[TrainingExample]]:
    """Examples of similar length together, to save padding; at least one in each chunk."""
    chunk: list[TrainingExample] = []
    for example in sorted(batch, key=len):
        if chunk and (len(chunk) + 1) * len(example) > most_tokens:
            yield chunk
            chunk = []
        chunk.append(example)
    yield chunk


def _loss(model: Any, chunk: Sequence[TrainingExample]) -> Tensor:
    """Sum over all response tokens of -log p(token | all before it).

    Rows are padded on the left: so responses end together, and only the logits of the last columns
    are computed.
    """
    torch, _ = packages("actor")
    width = max(map(len, chunk))
    longest = max(len(example.response) for example in chunk)
    ids = torch.zeros((len(chunk), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full((len(chunk), longest), -100)
    for row, example in enumerate(chunk):
        ids[row, width - len(example) :] = torch.tensor(example.prompt + example.response)
        mask[row, width - len(example) :] = 1
        labels[row, longest - len(example.response) :] = torch.tensor(example.response)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    device = model.device
    logits = model(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=positions.to(device),
        use_cache=False,
        logits_to_keep=longest + 1,
    ).logits[:, :-1]
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1),
        labels.flatten().to(device),
        ignore_index=-100,
        reduction="sum",
    )


# The whole.


@dataclass(frozen=True)
class Trial:
    """An evaluation of the model before and after.

    Attributes:
        tasks: so many of the first tasks are played, once each; as ``ascribe eval`` does.
        options: of the environment, where they differ: ``{"split": "eval"}``.
        sampling: how responses are drawn.
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
    """The result of a warm-up."""

    examples: int
    tokens: int
    """Tokens of their responses."""
    losses: tuple[float, ...]
    """Of each step, before its update, in nats per response token."""
    before: Success | None
    after: Success | None

    @property
    def first_loss(self) -> float:
        """Mean of the first tenth of the steps."""
        return float(np.mean(self.losses[: self._tenth]))

    @property
    def last_loss(self) -> float:
        """Mean of the last tenth of the steps."""
        return float(np.mean(self.losses[-self._tenth :]))

    @property
    def _tenth(self) -> int:
        return max(1, len(self.losses) // 10)


def warm_up(
    model: str | Path,
    setup: Setup,
    out: str | Path,
    *,
    demonstration: Demonstration = Demonstration(),  # noqa: B008 (frozen)
    schedule: Schedule = Schedule(),  # noqa: B008 (frozen)
    trial: Trial | None = None,
    context: int | None = None,
    device: str = "cpu",
    report: Callable[[str, float], None] = lambda _phase, _share: None,
) -> Warmup:
    """Play demonstrations, train a model on them in single precision, and write it.

    Args:
        model: a model folder, or ``smollm2``.
        setup: the environment, its options, and the style of prompts.
        out: folder to write, which TRL, vLLM and ``load_causal_lm`` read.
        demonstration: the episodes to learn from.
        schedule: how long and how fast to train.
        trial: if given, the model is evaluated before and after.
        context: leave out examples with more tokens than this.
        device: where to train.
        report: called with each phase and the share of it that is done.

    Raises:
        ValueError: if the environment cannot teach, or the folder to write is not empty.
        ImportError: without the extra ``actor``.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is there already, and not an empty folder")
    setup.facts, setup.agent  # noqa: B018 (their errors show before a model is loaded)
    network, tokenizer = load_smollm2() if model == "smollm2" else load_causal_lm(model)
    network.to(device)
    policy = TransformersPolicy(network, tokenizer, context=context)

    def progress(phase: str) -> Progress:
        return lambda share: report(phase, share)

    examples = demonstrate(setup, policy.chat, demonstration, progress("examples"))
    layout = demonstration.layout

    def evaluate(phase: str) -> Success | None:
        return None if trial is None else _evaluate(setup, policy, trial, layout, progress(phase))

    before = evaluate("before")
    losses = finetune(network, examples, schedule, progress("training"))
    after = evaluate("after")
    save_model(network, tokenizer, out)
    tokens = sum(len(example.response) for example in examples)
    return Warmup(len(examples), tokens, tuple(losses), before, after)


def _evaluate(
    setup: Setup, policy: TransformersPolicy, trial: Trial, layout: Layout, progress: Progress
) -> Success:
    setup = replace(setup, options={**setup.options, **trial.options})
    count = setup.facts[0]
    tasks = range(trial.tasks if count is None else min(trial.tasks, count))
    turns = setup.turns(trial.max_turns)
    plan = Plan(len(tasks), 1, turns, trial.seed, tasks=tasks, sampling=trial.sampling)
    rows = success(_play(plan, setup, policy, layout, progress))
    if not rows:
        raise ValueError("no episode of the trial was completed")
    return rows[-1]
