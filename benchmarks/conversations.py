"""Conversations: from masked token sequences to token advantages, and what merging steps saves.

The first part invents episodes in the shape that trainers hold: a prompt, then runs of 8 to 16
model tokens and observations of 8 to 24, 8 episodes to a task. Most have about 10 turns, and one
task in fifty has episodes of 200. An observation is one of 40 of its task, so states recur. Times
are CPU seconds on one core: ``from_sequences`` with a decoder, ``gigpo``, and ``spread`` in single
precision. The exponent is the slope of log time against log turns. ``peak_bytes`` is the most
memory held at one time beyond the inputs.

The second part counts training tokens on the package's environments at their turn limits, with
SmolLM2's tokenizer (in the quick case with a small one). Actions are random, without those that
buy, after a thought of 33 words. Step rows hold a prompt and a response for each step, once with
the papers' prompts, which show the last turns, and once with the whole chat. One sequence holds the
chat once: what ``merge`` makes of the whole chats, token for token.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, Figures, Work, interleaved, peak_bytes

from ascribe import recipe
from ascribe.sessions import from_sequences, merge, spread
from ascribe_lab.agents import Turn, View, agent_for
from ascribe_lab.envs import make
from ascribe_lab.models.loading import SMOLLM2, SMOLLM2_INSTALL, load_tokenizer, package_folder
from ascribe_lab.models.tokens import Chat

sys.path.insert(0, str(ROOT / "scripts"))

from make_tiny_model import train_tokenizer

VOCABULARY = [f"w{number} " for number in range(50_000)]
MILLION = 10**6
SINGLE = np.zeros(0, dtype=np.float32)
LIMITS = {"textcraft": 30, "webshop": 15, "sokoban": 28}
"""The turn limits of the papers' runs."""


def main() -> None:
    """Measure and print."""
    with Figures("conversations") as figures:
        sizes = (
            [5_000, 20_000, 80_000] if figures.quick else [31_250, 125_000, 500_000, 2 * MILLION]
        )
        scaling(figures, sizes)
        chat = Chat(tokenizer(figures.quick))
        for name, limit in LIMITS.items():
            training_tokens(figures, name, limit, chat, episodes=2 if figures.quick else 8)


# From a mask to token advantages.


@dataclass(frozen=True)
class Sequences:
    """Ragged sequences of a batch."""

    tokens: list[Any]
    mask: list[Any]
    group: list[int]
    reward: Any
    turns: int


def invented(turns: int) -> Sequences:
    """Sequences with about so many turns in all."""
    random = np.random.default_rng(0)
    per_task = 8 * (0.98 * 10 + 0.02 * 200)
    tasks = max(1, round(turns / per_task))
    length = np.where(np.arange(tasks) % 50 == 0, 200, 10).repeat(8)
    length = length + random.integers(-2, 3, length.size)  # turns of each episode
    task = np.repeat(np.arange(tasks), 8)
    count = int(length.sum())
    seen = random.integers(40, size=count) + 40 * np.repeat(task, length)
    did = random.integers(6, size=count) + 6 * seen
    # An observation and a response for each turn, which their numbers tell.
    pieces = np.stack([seen, did], axis=1).reshape(-1)
    sizes = np.where(np.arange(2 * count) % 2 == 0, 8 + pieces % 17, 8 + pieces % 9)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    tokens = ((np.repeat(pieces, sizes) * 31 + within * 7919) % 50_000).astype(np.int32)
    mask = np.repeat(np.arange(2 * count) % 2 == 1, sizes)
    bounds = np.cumsum(np.add.reduceat(sizes, 2 * (np.cumsum(length) - length)))[:-1]
    reward = random.integers(2, size=length.size).astype(float)
    return Sequences(np.split(tokens, bounds), np.split(mask, bounds), task.tolist(), reward, count)


def decode(ids: list[int]) -> str:
    """The text of token ids."""
    return "".join(map(VOCABULARY.__getitem__, ids))


def to_steps(batch: Sequences) -> Any:
    """A table and spans."""
    return from_sequences(
        batch.tokens, batch.mask, group=batch.group, reward=batch.reward, decode=decode
    )


def to_advantages(batch: Sequences) -> Any:
    """From the mask to token advantages."""
    table, spans = to_steps(batch)
    return spread(recipe("gigpo")(table), spans, like=SINGLE)


def scaling(figures: Figures, sizes: list[int]) -> None:
    """Time at every size, all of them in every round; parts and memory at the largest."""
    batches = [invented(size) for size in sizes]
    works = {f"{batch.turns}": Work(lambda batch=batch: batch, to_advantages) for batch in batches}
    seconds = interleaved(works, rounds=2)
    for batch in batches:
        goal = 30.0 if batch.turns > MILLION else None
        cpu = seconds[f"{batch.turns}"].cpu
        figures.emit(named(batch), "cpu_seconds", cpu, "s", "lower", goal)
    turns = [batch.turns for batch in batches]
    times = [seconds[f"{count}"].cpu for count in turns]
    slope = float(np.polyfit(np.log(turns), np.log(times), 1)[0])
    figures.emit("mask to token advantages", "exponent", slope, "power of turns", "lower", 1.05)

    largest = batches[-1]
    parts_of(figures, largest)
    peak = peak_bytes(works[f"{largest.turns}"])
    figures.emit(named(largest), "peak_bytes", peak, "bytes", "lower")
    tokens = sum(row.size for row in largest.tokens)
    figures.emit(named(largest), "peak_bytes_per_token", peak / tokens, "bytes", "lower")


def parts_of(figures: Figures, batch: Sequences) -> None:
    """Time of the way to steps and of the way back to tokens."""
    table, spans = to_steps(batch)
    credit = recipe("gigpo")(table)
    parts = {
        "to_steps": Work(lambda: batch, to_steps),
        "spread": Work(lambda: None, lambda _: spread(credit, spans, like=SINGLE)),
    }
    for part, spent in interleaved(parts, rounds=1, warm_up=False).items():
        figures.emit(named(batch), f"{part}_seconds", spent.cpu, "s", "lower")


def named(batch: Sequences) -> str:
    """The name of a case."""
    return f"{batch.turns:,} turns, {sum(row.size for row in batch.tokens):,} tokens"


# Training tokens.


def tokenizer(quick: bool) -> Any:
    """SmolLM2's tokenizer, or, which is quick, one that is trained on this file."""
    if quick:
        return train_tokenizer([Path(__file__).read_text()], 2_000)
    return load_tokenizer(package_folder(SMOLLM2[0], SMOLLM2_INSTALL), gguf_file=SMOLLM2[1])


THOUGHT = (
    "I look at what I have and at what is still missing, and then I choose the next action so that "
    "it brings me one step closer to the end of the task."
)


@dataclass
class Counts:
    """Tokens of one episode, or of several."""

    episodes: int = 0
    paper: int = 0
    whole: int = 0
    merged: int = 0
    sequences: int = 0


def training_tokens(figures: Figures, name: str, limit: int, chat: Chat, episodes: int) -> None:
    """Tokens of step rows and of one sequence, on the same episodes."""
    env, counts = make(name), Counts()
    for seed in range(4 * episodes):
        if counts.episodes < episodes:
            count_tokens(env, seed, agent_for(name), chat, limit, counts)
    case = f"{name}, {limit} turns, {counts.episodes} episodes"
    one = counts.merged / counts.episodes
    figures.emit(case, "tokens_of_one_sequence", one, "tokens", "lower")
    sequences = counts.sequences / counts.episodes
    figures.emit(case, "sequences_of_an_episode", sequences, "sequences", "lower", 1.0)
    saved = {"paper_prompts": (counts.paper, 2.0), "whole_histories": (counts.whole, 8.0)}
    for prompts, (tokens, goal) in saved.items():
        metric = f"saved_with_{prompts}"
        figures.emit(case, metric, tokens / counts.merged, "times", "higher", goal)


def count_tokens(env: Any, seed: int, agent: Any, chat: Chat, limit: int, counts: Counts) -> None:
    """Play an episode, and count its tokens if it lasts to the limit."""
    random = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    turns: list[Turn] = []
    messages: list[dict[str, str]] = []
    prompts, responses, paper = [], [], 0
    for turn in range(limit):
        view = View(info["task"], observation, turns, info["admissible_actions"])
        shown = agent.messages(view)
        # The chat begins with the paper's prompt; then it shows what is new.
        new = "\n".join([observation, *(info["admissible_actions"] or ())])
        messages += [{"role": "user", "content": new}] if turns else shown
        actions = info["admissible_actions"] or info["example_actions"]
        actions = [each for each in actions if "buy now" not in each.lower()]
        action = actions[random.integers(len(actions))]
        response = f"<think>{THOUGHT}</think><action>{action}</action>"
        ids = chat.tokenizer(response, add_special_tokens=False)["input_ids"]
        responses.append([*ids, chat.tokenizer.eos_token_id])
        prompts.append(chat.prompt(messages))
        paper += len(chat.prompt(shown)) + len(responses[-1])
        messages.append({"role": "assistant", "content": response})
        turns.append(Turn(observation, response, action))
        observation, _, terminated, truncated, info = env.step(action)
        if (terminated or truncated) and turn + 1 < limit:
            return
    merged = merge(prompts, responses, [0] * limit)
    counts.episodes += 1
    counts.paper += paper
    counts.whole += sum(map(len, prompts)) + sum(map(len, responses))
    counts.merged += int(merged.spans.lengths.sum())
    counts.sequences += len(merged.tokens)


if __name__ == "__main__":
    main()
