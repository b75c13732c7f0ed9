"""``warm_up``: a short supervised start, so that a model gives valid actions in an environment.

Reinforcement learning improves what a policy does sometimes. A small model that never gives a valid
action earns nothing in any episode, and there is nothing to compare. So an expert plays episodes,
and TRL's ``SFTTrainer`` teaches the model its responses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from math import gcd
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from ascribe.steps.errors import InputError, MissingPackageError
from ascribe_lab.extras import install
from ascribe_lab.models import Chat, ExpertPolicy, RandomPolicy, TransformersPolicy
from ascribe_lab.models.loading import load_causal_lm, load_smollm2, save_model
from ascribe_lab.models.tokens import Message, PromptTooLongError
from ascribe_lab.rollout import Plan, Request, Sample, Sampling, SamplingPolicy, Setup, rollout
from ascribe_lab.train.chat import GrowingChat, in_layout
from ascribe_lab.train.config import Layout

Teacher = Literal["expert", "random"]
"""The environment's expert, or any admissible action."""

Progress = Callable[[float], None]
"""Called with the share that is done."""

MOST_TOKENS = 2048
"""Tokens that go through the model at once, unless a single example has more; it bounds memory."""


class TrainingExample(NamedTuple):
    """A prompt and the response to it, in tokens."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    """With the token that ends the turn."""


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
            raise InputError("noise is for the expert: random actions need no others")


@dataclass
class NoisyExpert:
    """A policy that records the expert's responses, and sometimes samples another."""

    expert: SamplingPolicy
    """Its responses are recorded."""
    other: SamplingPolicy
    """Samples instead, now and then."""
    noise: float
    """How often; the request's seed decides."""
    chat: Chat | None = None
    """Tokenises prompts and samples, for chats that grow by their tokens."""
    recorded: list[tuple[Sequence[Message], str]] = field(default_factory=list)

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
    agent, playing = in_layout(demonstration.layout, setup.agent, policy)
    with setup.open_pool(plan.groups) as pool:
        rollout(plan, pool, agent, playing, progress=progress)
    examples = [_example(growing or chat, *recorded) for recorded in policy.recorded]
    fitting = [example for example in examples if example is not None]
    if not fitting:
        raise InputError("no episode gave an example that fits the model's context")
    return sorted(fitting)


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


# Supervised training.


@checked(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes:
        steps: updates.
        batch: examples of an update. All are used, in a new random order, before one is again.
        learning_rate: the highest; it rises from 0 over the first tenth of the steps, then falls
            to 0, both linearly.
        seed: of the order.
    """

    steps: int = Field(default=20, ge=1)
    batch: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=5e-5, gt=0)
    seed: int = 0


def finetune(
    model: Any,
    tokenizer: Any,
    examples: Sequence[TrainingExample],
    schedule: Schedule,
    progress: Progress = lambda _: None,
) -> list[float]:
    """Train a model on examples, in place, with TRL's ``SFTTrainer``; returns each step's loss.

    The loss of a batch is the mean over its response tokens of -log p(token | all before it).

    Args:
        model: a causal language model, in the type it is to be trained in. It is trained on a GPU
            if it is on one.
        tokenizer: its tokenizer, for the token that pads.
        examples: at least one.
        schedule: how long and how fast.
        progress: called with the share of steps that are done.
    """
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    class Report(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            progress(state.global_step / schedule.steps)

    rows = [
        {
            "input_ids": [*prompt, *response],
            "labels": [-100] * len(prompt) + list(response),  # prompts have no loss
        }
        for prompt, response in examples
    ]
    longest = max(len(row["input_ids"]) for row in rows)
    at_once = gcd(schedule.batch, max(1, MOST_TOKENS // longest))  # a divisor of the batch
    folder = TemporaryDirectory()  # where the trainer would write; it saves nothing
    settings = SFTConfig(
        output_dir=folder.name,
        max_steps=schedule.steps,
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=schedule.batch // at_once,
        learning_rate=schedule.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=schedule.steps // 10,
        seed=schedule.seed,
        max_length=None,  # what does not fit was left out
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=model.device.type == "cpu",
        save_strategy="no",  # it takes minutes; the caller writes the model
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = SFTTrainer(
        model,
        settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[Report()],
    )
    trainer.remove_callback(PrinterCallback)
    with folder:
        trainer.train()
    model.eval()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


# The whole.


@dataclass(frozen=True)
class Warmup:
    """The result of a warm-up."""

    examples: int
    tokens: int
    """Tokens of their responses."""
    losses: tuple[float, ...]
    """Of each step, before its update, in nats per response token."""

    @property
    def first_loss(self) -> float:
        """Mean of the first tenth of the steps."""
        return float(np.mean(self.losses[: max(1, len(self.losses) // 10)]))

    @property
    def last_loss(self) -> float:
        """Mean of the last tenth of the steps."""
        return float(np.mean(self.losses[-max(1, len(self.losses) // 10) :]))


def warm_up(
    model: str | Path,
    setup: Setup,
    out: str | Path,
    *,
    demonstration: Demonstration = Demonstration(),  # noqa: B008 (frozen)
    schedule: Schedule = Schedule(),  # noqa: B008 (frozen)
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
        context: leave out examples with more tokens than this.
        device: where to train: ``cpu`` or ``cuda``.
        report: called with each phase and the share of it that is done.

    Raises:
        ValueError: if the environment cannot teach, or the folder to write is not empty.
        ImportError: without the extra ``trl``.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there already, and not an empty folder")
    setup.facts, setup.agent  # noqa: B018 (their errors show before a model is loaded)
    if find_spec("trl") is None:
        raise MissingPackageError(
            "a warm-up needs TRL, which is not installed", hint=f"run: {install('trl')}"
        )
    network, tokenizer = load_smollm2() if model == "smollm2" else load_causal_lm(model)
    network.to(device)
    chat = TransformersPolicy(network, tokenizer, context=context).chat
    examples = demonstrate(setup, chat, demonstration, partial(report, "examples"))
    losses = finetune(network, tokenizer, examples, schedule, partial(report, "training"))
    save_model(network, tokenizer, out)
    tokens = sum(len(example.response) for example in examples)
    return Warmup(len(examples), tokens, tuple(losses))
