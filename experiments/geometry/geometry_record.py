"""The recording of ``geometry.py``: SmolLM2-135M plays, and its hidden states are kept."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from ascribe.steps.atomic import replacing
from ascribe_lab.envs.registry import make
from benchmarks import common

LAYERS = (5, 11, 17, 21, 25, 29)
"""Decoder blocks, of 30."""
ATTEMPTS = 16
LONGEST = 300
"""Characters of an observation that the prompt shows."""


@dataclass(frozen=True)
class World:
    """What is played, and how."""

    options: dict[str, Any]
    tasks: range
    turns: int
    assisted: float
    """Share of the steps in which the expert acts."""
    carried: bool = False
    """Whether the prompt adds what is carried; TextCraft's observations say it themselves."""
    first: str = "You have just begun."
    """In place of the first observation, which all prompts of a task begin with."""


WORLDS = {
    "textcraft": World(
        {"depth": 1, "inventory": True},
        range(40),
        turns=5,
        assisted=0.1,
        first="You have just begun.\nInventory: You are not carrying anything.",
    ),
    "alfworld": World(
        {"count": 30, "games_seed": 301, "win_reward": 1.0},
        range(30),
        turns=16,
        assisted=0.6,
        carried=True,
    ),
}


class Reader:
    """A model that reads the states of a task, each with all of its commands in one pass.

    What the prompts of a task share is tokenised apart, and read once. The commands are a tree of
    tokens behind the prompt: a token sees the prompt and what comes before it in its own commands.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.end = tokenizer.convert_tokens_to_ids("<|im_end|>")

    def begin(self, task: str) -> None:
        """Read what all prompts of a task share."""
        ask = f"{task}\n\n|\n\nReply with the next command alone."
        chat = [{"role": "user", "content": ask}]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        before, self.after = text.rsplit("|\n\n", 1)
        self.cache, ids = (
            transformers.DynamicCache(config=self.model.config),
            self.tokenizer(before)["input_ids"],
        )
        self.shared = len(ids)
        hidden, _ = self._pass(ids, np.arange(self.shared), np.tri(self.shared, dtype=bool))
        self.sums = [one.sum(axis=0) for one in hidden]

    def read(self, state: str, commands: Sequence[str]) -> tuple[Any, Any, Any]:
        """Probabilities of the commands; hidden states of the prompt, and at each command's end.

        Of shapes (commands), (layers, 2, width) for the last token and the mean over the prompt,
        and (commands, layers, width).
        """
        ids = self.tokenizer(f"{state}\n\n{self.after}")["input_ids"]
        size = len(ids)
        parent, place = list(range(-1, size - 1)), [*range(size)]
        node: dict[tuple[int, ...], int] = {(): size - 1}
        words = [tuple(self.tokenizer(command)["input_ids"]) for command in commands]
        for word in words:
            for length in range(1, len(word) + 1):
                if word[:length] not in node:
                    node[word[:length]] = len(ids)
                    parent.append(node[word[: length - 1]])
                    place.append(size + length - 1)
                    ids.append(word[length - 1])
        sees = np.eye(len(ids), dtype=bool)
        for token, before in enumerate(parent):
            if before >= 0:
                sees[token] |= sees[before]
        if read := self.cache.get_seq_length() - self.shared:
            self.cache.crop(-read)
        hidden, last = self._pass(ids, self.shared + np.array(place), sees)
        with torch.no_grad():
            log = self.model.lm_head(last[size - 1 :]).log_softmax(-1).numpy()
        score = [
            sum(log[node[word[:n]] - size + 1, token] for n, token in enumerate((*word, self.end)))
            for word in words
        ]
        chance = np.exp(np.array(score) - max(score))
        prompt = [
            (one[size - 1], (total + one[:size].sum(axis=0)) / (self.shared + size))
            for one, total in zip(hidden, self.sums, strict=True)
        ]
        ends = [[one[node[word]] for one in hidden] for word in words]
        return chance / chance.sum(), np.array(prompt, np.float32), np.array(ends, np.float32)

    def _pass(self, ids: list[int], place: Any, sees: Any) -> tuple[list[Any], Any]:
        """Hidden states of the new tokens by layer, and those that the output layer reads."""
        old = self.cache.get_seq_length()
        allowed = np.concatenate([np.ones((len(ids), old), dtype=bool), sees], axis=1)
        mask = torch.zeros(allowed.shape).masked_fill(torch.tensor(~allowed), -torch.inf)
        with torch.no_grad():
            read = self.model.model(
                input_ids=torch.tensor([ids]),
                attention_mask=mask[None, None],
                position_ids=torch.tensor(place)[None],
                past_key_values=self.cache,
                use_cache=True,
                output_hidden_states=True,
            )
        hidden = [read.hidden_states[layer + 1][0].numpy() for layer in LAYERS]
        return hidden, read.last_hidden_state[0]


def record(name: str, world: World, folder: Path, load: Callable[[], tuple[Any, Any]]) -> None:
    """Play the tasks that have no file yet."""
    missing = [task for task in world.tasks if not (folder / f"{name}-{task}.npz").exists()]
    if not missing:
        return
    reader = Reader(*load())
    with closing(make(name, expert=True, **world.options)) as game:
        for task in missing:
            rows, prompts, ends = play(game, world, task, reader)
            with replacing(folder / f"{name}-{task}.npz") as file:
                vectors = {"prompts": prompts.astype(np.float16), "ends": ends.astype(np.float16)}
                np.savez_compressed(file, rows=json.dumps(rows), **vectors)


def play(game: Any, world: World, task: int, reader: Reader) -> tuple[Any, Any, Any]:
    """The steps of all attempts at a task, and the hidden states of distinct states and pairs."""
    rows: list[dict[str, Any]] = []
    known: dict[Any, Any] = {}
    prompts: dict[str, tuple[int, Any]] = {}
    ends: dict[tuple[str, str], tuple[int, Any]] = {}
    for attempt in range(ATTEMPTS):
        random = np.random.default_rng([task, attempt])
        observation, info = game.reset(seed=task, options={"task": task})
        if attempt == 0:
            reader.begin(observation)
        observation = world.first
        for turn in range(world.turns):
            state, commands = observation[:LONGEST], tuple(info["admissible_actions"])
            if world.carried:
                state += f"\nYou carry: {info['state'].rpartition('carried: ')[2]}"
            if (state, commands) not in known:
                known[state, commands] = reader.read(state, commands)
            chance, prompt, of_end = known[state, commands]
            (help_drawn, drawn), expert = random.random(2), info["expert_action"]
            assisted = bool(help_drawn < world.assisted and expert in commands)
            own = min(int((np.cumsum(chance) < drawn).sum()), len(commands) - 1)
            choice = commands.index(expert) if assisted else own
            pair = state, commands[choice]
            row = {"attempt": attempt, "step": turn, "state": state, "action": pair[1]}
            row |= {"own": info["state"], "assisted": assisted}
            row |= {"prompt": prompts.setdefault(state, (len(prompts), prompt))[0]}
            row |= {"pair": ends.setdefault(pair, (len(ends), of_end[choice]))[0]}
            observation, reward, done, cut, info = game.step(pair[1])
            rows.append(row | {"reward": reward})
            if done or cut:
                break
    return rows, *(np.array([vector for _, vector in each.values()]) for each in (prompts, ends))


def tiny_model() -> tuple[Any, Any]:
    """A model with as many blocks that knows nothing, and the tokenizer of SmolLM2."""
    size = {"hidden_size": 32, "intermediate_size": 32}
    size |= {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**common.SMOLLM2_SHAPE | size)
    return transformers.LlamaForCausalLM(config).eval(), common.smollm2_tokenizer()
