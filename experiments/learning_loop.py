"""Shared by ``learning_experiment``: small worlds, a small policy, and a minimal training loop.

Not a benchmark by itself. The policy is a Llama of two layers that reads and writes tokens; the
worlds are the TextCraft games of ``examples/bipace_in_one_file.py`` and rooms of Ascribe's Sokoban.
Credit is the library's; the update is that of ``ascribe train`` on TRL (a test compares the two),
without what makes TRL slow for a policy this small. Sequences that occur several times in a batch
are computed once.

Random numbers are common to all runs of a seed: the n-th token of an action of an episode is drawn
with the same uniform number whatever the recipe, at the same iteration and turn.
"""

import copy
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from itertools import chain
from typing import Any
from zlib import crc32

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ascribe import StepTable, recipe
from ascribe.groups.fingerprints import normalised
from ascribe.groups.keys import keyed
from ascribe.groups.radius import Target, search
from ascribe.steps.check import arrange
from ascribe.steps.returns import reward_to_go
from ascribe_lab.envs.sokoban import MOVES, Position, Sokoban, SokobanEpisode, solve
from ascribe_lab.envs.webshop.game import Visit, WebShop, next_action
from benchmarks.common import ROOT

sys.path.append(str(ROOT / "examples"))
import bipace_in_one_file as example

END = 0
LAYER = 1
"""Hidden state (as transformers numbers them) that is the fingerprint of a prompt."""
GROUPS, SIZE = 8, 8
"""Tasks of an iteration, and episodes of each."""
ALONE = 0.7
"""RMS of advantages with one episode of a task, where GRPO has none: about its size in groups."""
CLIP = 0.2
ROWS_PER_PASS, PROMPTS_PER_PASS = 1024, 512

# Worlds.


class Tokens:
    """A vocabulary: the words and phrases that a world knows."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = ["<end>", "<unknown>", *dict.fromkeys(words)]
        self.ids = {word: number for number, word in enumerate(self.words)}
        longest_first = sorted(self.words[2:], key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, longest_first)) + r"|\d+")
        self.known: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text; what is no word or number is left out."""
        if text not in self.known:
            found = self.pattern.findall(text.lower())
            self.known[text] = tuple(self.ids.get(word, 1) for word in found)
        return self.known[text]

    def decode(self, ids: Sequence[int]) -> str:
        """The words of tokens."""
        return " ".join(self.words[number] for number in ids) or "nothing"


PHRASES = """you are ready.|you are not carrying anything.|you see|a cow moos|it is getting dark
|rain begins to fall|could not find a valid recipe for|could not find enough items to craft
|could not find|could not execute|got|crafted|inventory""".replace("\n", "").split("|")


def _crafting_words() -> list[str]:
    """What TextCraft says, and the two parts of each command."""
    recipes = "; ".join([*example.GAMES, example.SHARED]).split("; ")
    parts = sorted({part for recipe in recipes for part in re.split(" (?=using)", recipe)})
    items = sorted(set(re.findall(r"\d ([a-z ]+)", "|".join(parts))))
    return [*PHRASES, *parts, *(f"get {n}" for n in range(1, 5)), *items, *map(str, range(33))]


class TextCraft:
    """One game of the one-file example; the agent sees goal, last answer and inventory.

    A command is two tokens: ``get 2`` and ``oak log``, or ``craft 4 stick`` and ``using 2 oak
    planks``. Tokens can be combined wrongly, and then the command fails.
    """

    tasks = unseen = shown_tasks = tuple(range(8))
    horizon, longest = 12, 2
    tokens = Tokens(_crafting_words())

    def __init__(self, task: int, seed: str) -> None:
        self.game = example.TextCraft(task, random.Random(seed))
        self.won = self.over = False

    def look(self) -> tuple[str, tuple[int, ...]]:
        """The state by which steps are grouped, and the prompt."""
        state = self.game.inventory()
        return state, self.tokens.encode(f"{self.game.goal} {self.game.seen} {state}")

    def step(self, action: str) -> float:
        """The reward of an action."""
        reward = self.game.step(action)
        self.won = self.over = self.game.done
        return reward

    def demonstrate(self, rng: random.Random, noise: float) -> str:
        """What somebody does who knows the way, and strays in a share of the steps."""
        game = self.game
        if rng.random() >= noise:
            return game.expert()
        fetch = f"get {rng.randint(1, 4)} {rng.choice(game.fetched)}"
        return rng.choice([fetch, rng.choice(game.recipes), "inventory"])


Moved = tuple[Any, float, bool, bool]
"""What a world knows after an action; reward, whether it won, and whether the episode is over."""


class Graph:
    """The states of a task, the first of them the start; found when they are reached.

    Attributes:
        states: by which steps are grouped.
        prompts: what the policy reads in each.
        inside: what the world knows of each.
        rows: the number of the next state, reward, won and over, by word; "" is any other word.
    """

    def __init__(self, world: Any, task: int) -> None:
        self.world, self.task = world, task
        self.states: list[str] = []
        self.prompts: list[tuple[int, ...]] = []
        self.inside: list[Any] = []
        self.numbers: dict[str, int] = {}
        self.rows: dict[int, dict[str, tuple[int, float, bool, bool]]] = {}
        self._number(world.begin(task))

    def _number(self, inside: Any) -> int:
        state, prompt = self.world.shown(self.task, inside)
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.prompts.append(prompt)
            self.inside.append(inside)
        return number

    def moves(self, at: int) -> dict[str, tuple[int, float, bool, bool]]:
        """What each word leads to from a state."""
        if at not in self.rows:
            found = self.world.moves(self.task, self.inside[at])
            self.rows[at] = {w: (self._number(then), *rest) for w, (then, *rest) in found.items()}
        return self.rows[at]

    @cached_property
    def whole(self) -> tuple[Any, Any, Any]:
        """All states: next state, reward and end of each word, [states, words + 1]."""
        words, rows = (*self.world.words, ""), []
        for at, _ in enumerate(self.states):  # grows meanwhile
            moves = self.moves(at)
            rows.append([moves.get(word, moves[""]) for word in words])
        after, reward, _, over = (
            np.array([[move[place] for move in row] for row in rows]) for place in range(4)
        )
        return after, reward, over


class Mapped:
    """A world of few states, whose actions are single words. Tasks have a graph each."""

    tasks: tuple[int, ...]
    unseen: tuple[int, ...]
    """The tasks of evaluations."""
    horizon: int
    longest = 1
    tokens: Tokens
    words: tuple[str, ...]

    def __init__(self, task: int, _: str) -> None:
        self.graph, self.at = self.graph_of(task), 0
        self.won = self.over = False

    @classmethod
    @cache
    def graph_of(cls, task: int) -> Graph:
        """The graph of a task."""
        return Graph(cls, task)

    @classmethod
    def begin(cls, task: int) -> Any:
        """What the world knows at the start."""
        raise NotImplementedError

    @classmethod
    def moves(cls, task: int, inside: Any) -> dict[str, Moved]:
        """What each word leads to; "" is whatever is not named."""
        raise NotImplementedError

    @classmethod
    def shown(cls, task: int, inside: Any) -> tuple[str, tuple[int, ...]]:
        """The state by which steps are grouped, and the prompt."""
        raise NotImplementedError

    def look(self) -> tuple[str, tuple[int, ...]]:
        """The state by which steps are grouped, and the prompt."""
        return self.graph.states[self.at], self.graph.prompts[self.at]

    def step(self, action: str) -> float:
        """The reward of an action."""
        moves = self.graph.moves(self.at)
        self.at, reward, self.won, self.over = moves.get(action, moves[""])
        return reward

    def demonstrate(self, rng: random.Random, noise: float) -> str:
        """What somebody does who knows the way, and strays in a share of the steps."""
        if rng.random() < noise:
            return rng.choice(self.strays())
        return self.expert() or rng.choice(self.strays())

    def strays(self) -> Sequence[str]:
        """What somebody may do who strays."""
        return self.words

    def expert(self) -> str | None:
        """What somebody does who knows the way, if there is one."""
        raise NotImplementedError


class SokobanRoom(Mapped):
    """One room with one box; the agent sees the cells inside its outer wall."""

    tasks = unseen = shown_tasks = tuple(range(32))
    horizon, words = 16, MOVES
    tokens = Tokens([*"#_ox√ps", *MOVES])
    world = Sokoban(size=6, boxes=(1,), horizon=horizon)

    @classmethod
    @cache
    def room(cls, task: int) -> SokobanEpisode:
        """The room of a task."""
        return cls.world.begin(task, np.random.default_rng(0)).episode

    @classmethod
    def begin(cls, task: int) -> Position:
        return cls.room(task).position

    @classmethod
    def moves(cls, task: int, inside: Position) -> dict[str, Moved]:
        found = {}
        for word in (*MOVES, ""):
            episode = SokobanEpisode(cls.room(task).room, inside)
            outcome = cls.world.act(episode, word)
            found[word] = episode.position, outcome.reward, outcome.won, outcome.won
        return found

    @classmethod
    def shown(cls, task: int, inside: Position) -> tuple[str, tuple[int, ...]]:
        text = cls.room(task).room.shown(inside)
        within = "".join(row[1:-1] for row in text.splitlines()[1:-1])
        return text, cls.tokens.encode(within)

    def __init__(self, task: int, _: str) -> None:
        super().__init__(task, _)
        self.task = task

    def expert(self) -> str | None:
        moves = solve(self.room(self.task).room, self.graph.inside[self.at])
        return moves[0] if moves else None


LIKE_OTHERS = {
    *(2001, 2003, 2005, 2018, 2020, 2021, 2024, 2027, 2029, 2030, 2034, 2035, 2037),
    *(2038, 2041, 2044, 2053, 2055, 2059, 2065, 2070, 2072, 2073, 2077, 2079, 2080),
}
"""Rooms whose floor and targets are those of a room of training, of a demonstration, or of an
earlier room of evaluation."""


class UnseenRooms(SokobanRoom):
    """Rooms that nothing was developed on; those of evaluations are unlike those of training."""

    tasks = tuple(range(1000, 1512))
    unseen = tuple(sorted({*range(2000, 2064 + len(LIKE_OTHERS))} - LIKE_OTHERS))
    shown_tasks = range(3000, 3512)


class TwoBoxes(UnseenRooms):
    """Rooms with two boxes and many moves; nothing is paid but 1 for the end.

    Evaluations play the rooms that are trained on: what is learned in them does not carry over.
    """

    tasks = unseen = tuple(range(1000, 1032))
    horizon = 60
    world = Sokoban(size=6, boxes=(2,), horizon=horizon)

    @classmethod
    def moves(cls, task: int, inside: Position) -> dict[str, Moved]:
        found = super().moves(task, inside)
        return {word: (then, float(won), won, over) for word, (then, _, won, over) in found.items()}


SEARCH, BUY = "search", "buy now"
PLACES = tuple(f"result {number}" for number in range(1, 11))


def _shop_words() -> tuple[list[str], list[str]]:
    """What can be chosen in the generated shop, and what else its pages say."""
    kinds = json.loads(files("ascribe_lab.envs.webshop").joinpath("kinds.json").read_text())
    values = [value for choice in kinds["choices"].values() for value in choice["values"]]
    of_kinds = [kind[name] for kind in kinds["kinds"] for name in ("noun", "query")]
    attributes = [each for kind in kinds["kinds"] for each in kind["attributes"]]
    return sorted(set(values)), [*of_kinds, *sorted(set(attributes)), "chosen"]


class Shopping(Mapped):
    """The generated WebShop: first page of results; what was chosen stands in the prompt.

    A link is one word of the policy: ``result 3`` stands for the number of that product, and
    ``search`` for the words of the instruction.
    """

    tasks, unseen = tuple(range(128)), tuple(range(1000, 1064))
    shown_tasks = range(2000, 2256)
    horizon = 10
    links = (SEARCH, "back to search", "< prev", "description", BUY)
    values, others = _shop_words()
    words = (*links, *PLACES, *values)
    tokens = Tokens([*words, *others])

    @classmethod
    @cache
    def shop(cls) -> WebShop:
        """The shop, which needs an extra."""
        return WebShop(split="train", win_reward=1.0)

    @classmethod
    def begin(cls, task: int) -> Visit:
        return cls.shop().begin(task, np.random.default_rng(0)).episode

    @classmethod
    def moves(cls, _: int, inside: Visit) -> dict[str, Moved]:
        found: dict[str, Moved] = {"": (inside, 0.0, False, inside.place == "done")}
        for word, action in cls.actions(inside).items():
            visit = replace(inside, choices=dict(inside.choices))
            outcome = cls.shop().act(visit, action)
            found[word] = visit, outcome.reward, outcome.won, outcome.terminated
        return found

    @classmethod
    def actions(cls, visit: Visit) -> dict[str, str]:
        """The shop's action for each word that stands for one on this page."""
        named = {
            f"click[{cls.shop().shop.products[number].asin.lower()}]": place
            for place, number in zip(PLACES, visit.shown, strict=False)
        }
        found = cls.shop().admissible(visit) if visit.place != "done" else ()
        words = {named.get(action, action[6:-1]): action for action in found}
        words = {SEARCH: found[0]} if visit.place == SEARCH else words
        return {word: action for word, action in words.items() if word in cls.words}

    @classmethod
    def shown(cls, _: int, inside: Visit) -> tuple[str, tuple[int, ...]]:
        goal = cls.shop().shop.goals[inside.goal]
        wish = goal.instruction.rpartition(", and price lower than ")[0] or goal.instruction
        products = cls.shop().shop.products
        page = [inside.place]
        if inside.place == "results":
            titles = (products[number].title for number in inside.shown)
            page += [f"{place} {title}" for place, title in zip(PLACES, titles, strict=False)]
        elif inside.product is not None:
            product = products[inside.product]
            page += [product.title, *(v for of in product.options.values() for v in of)]
            page += ["chosen", *(value for _, value in sorted(inside.choices.items()))]
        state = cls.shop().state_key(inside, "")
        return state, tuple(chain.from_iterable(map(cls.tokens.encode, [wish, *page])))

    def strays(self) -> Sequence[str]:
        return list(self.actions(self.graph.inside[self.at]))

    def expert(self) -> str | None:
        visit = self.graph.inside[self.at]
        action = next_action(self.shop().shop, visit)
        found = {action: word for word, action in self.actions(visit).items()}
        return found.get(action) if action else None


class Clock:
    """A clock in every text, so that no text recurs: the time of day, which goes on by chance."""

    def __init__(self, task: int, seed: str) -> None:
        super().__init__(task, seed)  # type: ignore[call-arg]
        self.rng = random.Random(f"clock {seed}")
        self.now = self.rng.randrange(86_400)

    def look(self) -> tuple[str, tuple[int, ...]]:
        """The state with the time before it, and the prompt with the time before it."""
        state, prompt = super().look()  # type: ignore[misc]
        self.now = (self.now + self.rng.randint(1, 120)) % 86_400
        time = time_of(self.now)
        return f"Time {time}. {state}", (*self.tokens.encode(time), *prompt)  # type: ignore[attr-defined]


def time_of(second: int) -> str:
    """The time of day."""
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


class TextCraftClock(Clock, TextCraft):
    """TextCraft with a clock."""


class SokobanClock(Clock, SokobanRoom):
    """Sokoban with a clock."""

    tokens = Tokens([*SokobanRoom.tokens.words[2:], *"0123456789"])


class UnseenRoomsClock(Clock, UnseenRooms):
    """Rooms that are not trained on, with a clock."""

    tokens = SokobanClock.tokens


def true_state(text: str) -> str:
    """The state that a text shows: without the clock, items in rising order."""
    text = re.sub(r"^Time [\d:]+\. ", "", text)
    return " ".join(sorted(re.findall(r"\[.+?\] \(\d+\)", text))) or text


WORLDS: dict[str, Any] = {"textcraft": TextCraft, "sokoban": SokobanRoom}
CLOCKED: dict[str, Any] = {"textcraft clock": TextCraftClock, "sokoban clock": SokobanClock}
UNSEEN: dict[str, Any] = {
    "sokoban, unseen rooms": UnseenRooms,
    "webshop": Shopping,
    "sokoban, clock": UnseenRoomsClock,
    "sokoban, two boxes": TwoBoxes,
}
ALL_WORLDS = WORLDS | CLOCKED | UNSEEN


@dataclass(frozen=True)
class Start:
    """How the policy at the start of a run was made: by copying demonstrations."""

    noise: float
    """Share of steps in which the demonstrator strays."""
    updates: int


STARTS = {
    ("textcraft", "weak"): Start(0.7, 100),
    ("textcraft", "strong"): Start(0.5, 200),
    ("sokoban", "weak"): Start(0.4, 200),
    ("sokoban", "strong"): Start(0.2, 500),
}
STARTS |= {
    (f"{world} clock", start): STARTS[world, start]
    for world in WORLDS
    for start in ("weak", "strong")
}

# The policy, and episodes.


def new_policy(world: Any, seed: int) -> Any:
    """A random policy."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(world.tokens.words), **shape, **heads))


@dataclass
class Step:
    """One decision."""

    group: str
    trajectory: str
    step: int
    state: str
    prompt: tuple[int, ...]
    action: str = ""
    reward: float = 0.0
    valid: bool = True
    tokens: tuple[int, ...] = ()
    logps: list[float] = field(default_factory=list)
    """Of the tokens, when they were sampled."""
    fingerprint: Any = None
    world: Any = None
    """A copy of the world before the action, where steps are branched."""


def _padded(rows: Sequence[Sequence[float]], side: str, dtype: Any = np.int64) -> tuple[Any, Any]:
    """Rows of one length, zeros where they are padded, and a mask that is 1 where they are real."""
    lengths = np.array([len(row) for row in rows])
    place = np.arange(lengths.max())
    left = lengths.max() - lengths if side == "left" else 0 * lengths
    mask = (place >= left[:, None]) & (place < (left + lengths)[:, None])
    values = np.zeros(mask.shape, dtype)
    values[mask] = np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum()))
    return torch.from_numpy(values), torch.from_numpy(mask.astype(np.int64))


def _distinct(items: Sequence[Any]) -> tuple[list[Any], Any]:
    """The distinct items, and which of them each item is."""
    numbers: dict[Any, int] = {}
    places = [numbers.setdefault(item, len(numbers)) for item in items]
    return list(numbers), torch.tensor(places)


def forward(
    policy: Any, ids: Any, mask: Any, last: int, past: list[Any] | None = None
) -> tuple[Any, list[Any]]:
    """What the output layer of a Llama reads, [B, last, H], and what each layer reads, [B, T, H].

    As ``policy.model``, without the overhead, which is most of the time of so small a policy.

    Args:
        policy: a ``LlamaForCausalLM`` with as many key heads as heads.
        ids: the tokens, [B, T].
        mask: 1 for real tokens among all so far, [B, past + T].
        last: how many of the last places the output layer reads; the top layer omits the others.
        past: keys and values of each layer, to which those of these tokens are appended.
    """
    config, (rows, width) = policy.config, ids.shape
    size, heads = config.hidden_size, config.num_attention_heads
    at = (mask.cumsum(1) - 1).clamp(min=0)[:, -width:]
    cos, sin = (table[at][:, None] for table in _rotations(size // heads))
    seen = mask[:, None, None].bool()
    if width > 1:
        seen = seen & torch.ones(width, mask.shape[1], dtype=torch.bool).tril()
        seen = seen | torch.eye(width, dtype=torch.bool)  # so that padding attends to something
    hidden = [torch.nn.functional.embedding(ids, policy.model.embed_tokens.weight)]
    top = len(policy.model.layers) - 1
    for number, layer in enumerate(policy.model.layers):
        x, of = hidden[-1], layer.self_attn
        weights = torch.cat([of.q_proj.weight, of.k_proj.weight, of.v_proj.weight])
        mixed = _linear(_normed(x, layer.input_layernorm), weights)
        q, k, v = mixed.view(rows, width, 3, heads, size // heads).permute(2, 0, 3, 1, 4)
        k, keep = _turned(k, cos, sin), last if number == top else width
        x, q = x[:, -keep:], _turned(q[:, :, -keep:], cos[:, :, -keep:], sin[:, :, -keep:])
        if past is not None:
            if len(past) > number:
                k, v = (torch.cat(pair, 2) for pair in zip(past[number], (k, v), strict=True))
                past[number] = k, v
            else:
                past.append((k, v))
        among = seen[:, :, -keep:]
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=among)
        x = x + _linear(out.transpose(1, 2).reshape(rows, keep, size), of.o_proj.weight)
        y, of = _normed(x, layer.post_attention_layernorm), layer.mlp
        gated = torch.nn.functional.silu(_linear(y, of.gate_proj.weight))
        hidden.append(x + _linear(gated * _linear(y, of.up_proj.weight), of.down_proj.weight))
    return _normed(hidden.pop(), policy.model.norm), hidden


_linear = torch.nn.functional.linear


def _normed(x: Any, norm: Any) -> Any:
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), norm.weight, norm.variance_epsilon)


def _turned(x: Any, cos: Any, sin: Any) -> Any:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


@cache
def _rotations(size: int, places: int = 1024) -> tuple[Any, Any]:
    """Cosine and sine of the rotary embedding at each place."""
    angles = torch.arange(places)[:, None] * 1e4 ** (-torch.arange(0, size, 2) / size)
    angles = torch.cat([angles, angles], 1)
    return angles.cos(), angles.sin()


@torch.no_grad()
def act(policy: Any, world: Any, steps: Sequence[Step], uniform: Any) -> None:
    """Sample an action for every step, with one uniform number for each token."""
    prompts, place = _distinct([step.prompt for step in steps])
    ids, mask = _padded(prompts, "left")
    past: list[Any] = []
    out, hidden = forward(policy, ids, mask, 1, past)
    fingerprints = hidden[LAYER][:, -1][place].numpy()
    logits, mask = policy.lm_head(out[:, -1])[place], mask[place]
    past = [(keys[place], values[place]) for keys, values in past]
    live = torch.arange(len(steps))
    said = torch.full((len(steps), world.longest), END)
    logps = torch.zeros(len(steps), world.longest)
    for number in range(world.longest):
        logp = logits.log_softmax(-1)
        below = logp.exp().cumsum(-1) < torch.from_numpy(uniform[live.numpy(), number, None])
        word = below.sum(-1, keepdim=True).clamp(max=logp.shape[1] - 1)
        said[live, number] = word[:, 0]
        logps[live, number] = logp.gather(1, word)[:, 0]
        going = word[:, 0] != END
        if number == world.longest - 1 or not going.any():
            break
        live, word = live[going], word[going]
        past = [(keys[going], values[going]) for keys, values in past]
        mask = torch.cat([mask[going], torch.ones_like(word)], 1)
        logits = policy.lm_head(forward(policy, word, mask, 1, past)[0][:, -1])
    words, logs = said.tolist(), logps.tolist()
    for number, step in enumerate(steps):
        length = [*words[number], END].index(END)
        step.action = world.tokens.decode(words[number][:length])
        step.tokens = tuple(words[number][: length + 1])
        step.logps = logs[number][: length + 1]
        step.fingerprint = fingerprints[number]


class FirstWords:
    """What a policy says first to each prompt: computed once for every prompt that recurs."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.numbers: dict[tuple[int, ...], int] = {}
        self.logps: Any = np.zeros((0, policy.config.vocab_size), np.float32)
        self.fingerprints: Any = np.zeros((0, policy.config.hidden_size), np.float32)

    @torch.no_grad()
    def read(self, prompts: Sequence[tuple[int, ...]]) -> Any:
        """The number of each prompt: its row in ``logps`` and ``fingerprints``."""
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self.numbers]
        new.sort(key=len)
        for start in range(0, len(new), PROMPTS_PER_PASS):
            part = new[start : start + PROMPTS_PER_PASS]
            out, hidden = forward(self.policy, *_padded(part, "left"), 1)
            logps = self.policy.lm_head(out[:, -1]).log_softmax(-1)
            self.numbers |= {p: len(self.numbers) + i for i, p in enumerate(part)}
            self.logps = np.concatenate([self.logps, logps.numpy()])
            self.fingerprints = np.concatenate([self.fingerprints, hidden[LAYER][:, -1].numpy()])
        return np.array([self.numbers[prompt] for prompt in prompts])

    def logps_of(self, prompts: Sequence[tuple[int, ...]]) -> Any:
        """The log-probability of each word after each prompt."""
        rows = self.read(prompts)  # before ``logps``, which grows
        return self.logps[rows]

    def act(self, world: Any, steps: Sequence[Step], uniform: Any) -> None:
        """Sample an action of one word for every step, with one uniform number."""
        rows = self.read([step.prompt for step in steps])
        below = np.exp(self.logps[rows]).cumsum(1) < uniform[:, :1]
        said = np.minimum(below.sum(1), below.shape[1] - 1)
        for step, row, word in zip(steps, rows, said.tolist(), strict=True):
            step.action = world.tokens.decode([word] if word != END else [])
            step.tokens, step.logps = (word,), [float(self.logps[row, word])]
            step.fingerprint = self.fingerprints[row]


def play(
    world: Any, tasks: Sequence[int], each: int, name: str, choose: Callable[..., None]
) -> tuple[list[Step], float]:
    """``each`` episodes of every task: their steps in order, and the share that was won."""
    names = [f"{task:02}/{number:03}" for task in tasks for number in range(each)]
    worlds = [world(int(each.partition("/")[0]), f"{name} {each}") for each in names]
    rng = np.random.default_rng(crc32(name.encode()))
    uniform = rng.random((world.horizon, len(names), world.longest), dtype=np.float32)
    steps: list[Step] = []
    for turn in range(world.horizon):
        open_ = [number for number, one in enumerate(worlds) if not one.over]
        if not open_:
            break
        rows = [Step(names[n].partition("/")[0], names[n], turn, *worlds[n].look()) for n in open_]
        choose(rows, [worlds[n] for n in open_], uniform[turn, open_])
        for number, row in zip(open_, rows, strict=True):
            row.reward = worlds[number].step(row.action)
            row.valid = getattr(worlds[number], "valid", True)
        steps += rows
    steps.sort(key=lambda row: (row.trajectory, row.step))
    return steps, sum(one.won for one in worlds) / len(worlds)


def play_policy(
    policy: Any, world: Any, tasks: Sequence[int], each: int, name: str
) -> tuple[list[Step], float]:
    """Episodes of a policy."""
    words = FirstWords(policy)

    def choose(rows: list[Step], _: Any, uniform: Any) -> None:
        act(policy, world, rows, uniform) if world.longest > 1 else words.act(world, rows, uniform)

    return play(world, tasks, each, name, choose)


# Updates.


def token_logps(policy: Any, steps: Sequence[Step]) -> tuple[Any, Any]:
    """The log-probability of each token of each step, [steps, tokens], and 1 where it is real."""
    if all(len(step.tokens) == 1 for step in steps):
        prompts, place = _distinct([step.prompt for step in steps])
        out, _ = forward(policy, *_padded(prompts, "left"), 1)
        words = torch.tensor([step.tokens for step in steps])
        logps = policy.lm_head(out[:, -1]).log_softmax(-1)[place].gather(1, words)
        return logps, torch.ones_like(words)
    pairs, place = _distinct([(step.prompt, step.tokens) for step in steps])
    before, mask = _padded([prompt for prompt, _ in pairs], "left")
    after, real = _padded([tokens for _, tokens in pairs], "right")
    ids, mask = torch.cat([before, after], 1), torch.cat([mask, real], 1)
    out, _ = forward(policy, ids, mask, after.shape[1] + 1)
    logps = policy.lm_head(out[:, :-1]).log_softmax(-1).gather(2, after[:, :, None])[:, :, 0]
    return logps[place], real[place]


def update(policy: Any, optimizer: Any, steps: Sequence[Step], advantage: Any = None) -> None:
    """One step of the optimiser: up the clipped gain, or without advantages, up the likelihood.

    The loss is the mean over all tokens, as TRL's ``dapo``; gradients are clipped at norm 1.
    """
    total = sum(len(step.tokens) for step in steps)
    order = sorted(range(len(steps)), key=lambda i: len(steps[i].prompt) + len(steps[i].tokens))
    optimizer.zero_grad()
    for start in range(0, len(order), ROWS_PER_PASS):
        rows = order[start : start + ROWS_PER_PASS]
        part = [steps[i] for i in rows]
        gain, real = token_logps(policy, part)
        if advantage is not None:
            old, _ = _padded([step.logps for step in part], "right", np.float32)
            ratio = (gain - old).exp()
            earned = torch.tensor(advantage[rows], dtype=torch.float32)[:, None]
            gain = torch.minimum(ratio * earned, ratio.clamp(1 - CLIP, 1 + CLIP) * earned)
        (-(gain * real).sum() / total).backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def clone(name: str, start: Start, seed: int, policy: Any = None) -> Any:
    """A policy that copies demonstrations: a new one, or a copy of this one."""
    world, rng = ALL_WORLDS[name], random.Random(f"clone {seed}")
    policy = new_policy(world, seed) if policy is None else copy.deepcopy(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)

    def choose(rows: list[Step], worlds: list[Any], _: Any) -> None:
        for row, one in zip(rows, worlds, strict=True):
            row.action = one.demonstrate(rng, start.noise)
            row.tokens = (*world.tokens.encode(row.action), END)[: world.longest]

    for number in range(start.updates):
        tasks = rng.sample(world.shown_tasks, GROUPS)
        update(policy, optimizer, play(world, tasks, 2, f"clone {seed} {number}", choose)[0])
    return policy


# Learning.


def step_table(steps: Sequence[Step]) -> StepTable:
    """The steps as a table, with fingerprints."""
    names = ("group", "trajectory", "step", "state", "action", "reward", "valid")
    table = StepTable.from_columns({name: [getattr(s, name) for s in steps] for name in names})
    return replace(table, fingerprint=np.stack([step.fingerprint for step in steps]))


def rms(values: Any) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def clusters(recipe: Any) -> bool:
    """Whether a recipe clusters fingerprints."""
    given = getattr(recipe, "fingerprint", "") == "given"
    return given and getattr(recipe, "states", "cluster") == "cluster"


def search_radius(policy: Any, reader: Any, name: str, seed: int, target: Target) -> float:
    """The radius of clusters for the hidden states of a reader, on one batch of a policy."""
    world = ALL_WORLDS[name]
    steps, _ = play_policy(policy, world, world.tasks[:GROUPS], SIZE, f"radius {seed}")
    vectors = normalised(read(reader, steps))
    groups = np.array([step.group for step in steps])
    by_task = [vectors[groups == group] for group in np.unique(groups)]
    return search([unit @ unit.T for unit in by_task], target, probes=14).radius


def purity(labels: Any, table: StepTable) -> float:
    """The share of pairs in a cluster whose states are equal, whatever their order of items."""
    texts = map(true_state, table.state.texts())
    pairs = Counter(zip(labels.tolist(), texts, strict=True))
    together = sum(n * (n - 1) for n in Counter(labels.tolist()).values())
    return sum(n * (n - 1) for n in pairs.values()) / max(together, 1)


@dataclass(frozen=True)
class Run:
    """One learning curve.

    Attributes:
        recipe: a function of a step table whose result has an advantage for every row.
        rate: learning rate of Adam.
        seed: of everything random.
        iterations: how many.
        every: iterations between evaluations.
        held_out: episodes of an evaluation, at least; 0 for none.
        equal: rescale the advantages of a batch to the RMS of GRPO's on the same batch.
        reader: a frozen policy whose hidden states are the fingerprints, in place of the learner's.
        key: a function of the text of a state, by which steps are grouped.
        groups: tasks of an iteration.
        size: episodes of each task; with one, advantages are rescaled to the RMS ``ALONE``.
        critic: gives the column ``value``, and learns from every batch.
        updates: of an iteration, each with its part of the steps.
    """

    world: str
    recipe: Any
    rate: float
    seed: int
    iterations: int
    every: int
    held_out: int = 512
    equal: bool = True
    reader: Any = None
    key: Callable[[str], str] | None = None
    groups: int = GROUPS
    size: int = SIZE
    critic: Any = None
    updates: int = 2

    @cached_property
    def grpo(self) -> Any:
        """The recipe that sets the RMS."""
        return recipe("grpo")

    def train(self, policy: Any) -> Iterator[dict[str, float]]:
        """Train a policy in place; a line for every iteration, and one for the end."""
        world = ALL_WORLDS[self.world]
        optimizer = torch.optim.Adam(policy.parameters(), lr=self.rate)
        for number in range(self.iterations + 1):
            line: dict[str, float] = {"iteration": number}
            if self.held_out and (number % self.every == 0 or number == self.iterations):
                each = -(-self.held_out // len(world.unseen))
                name = f"test {self.seed} {number}"
                line["held_out"] = play_policy(policy, world, world.unseen, each, name)[1]
            if number < self.iterations:
                line |= self.iterate(policy, optimizer, number)
            yield line

    def iterate(self, policy: Any, optimizer: Any, number: int) -> dict[str, float]:
        """Play, credit, and update."""
        rng = np.random.default_rng([self.seed, number])
        steps, success = self.batch(policy, number, rng)
        advantage, table, line = self.credit(steps)
        for part in np.array_split(rng.permutation(len(steps)), self.updates):
            update(policy, optimizer, [steps[i] for i in part], advantage[part])
        if self.critic is not None:
            self.critic.learn(steps, table)
        return {"success": success, "rows": len(steps), **line}

    def batch(self, policy: Any, number: int, rng: Any) -> tuple[list[Step], float]:
        """The episodes of an iteration, and the share that was won."""
        world = ALL_WORLDS[self.world]
        tasks = sorted(rng.choice(world.tasks, self.groups, replace=False).tolist())
        return play_policy(policy, world, tasks, self.size, f"train {self.seed} {number}")

    def credit(self, steps: Sequence[Step]) -> tuple[Any, StepTable, dict[str, float]]:
        """The advantage of each step, the table that it was computed from, and figures."""
        table = step_table(steps)
        if self.key is not None:
            table = replace(table, state=keyed(table.state, self.key))
        if self.critic is not None:
            table = replace(table, value=self.critic.values(steps))
        if self.reader is not None:
            table = replace(table, fingerprint=read(self.reader, steps))
        advantage = np.asarray(self.recipe(table).advantage)
        size = rms(advantage)
        line = {"rms": size}
        if clusters(self.recipe):
            line["purity"] = purity(self.recipe.state_groups(table, {})[0].labels, table)
        if self.equal:
            target = rms(self.grpo(table).advantage) if self.size > 1 else ALONE
            advantage = advantage * (target / max(size, 1e-9))
        return advantage, table, line


@torch.no_grad()
def read(policy: Any, steps: Sequence[Step]) -> Any:
    """The hidden states of a policy at the end of the prompts of steps."""
    prompts, place = _distinct([step.prompt for step in steps])
    _, hidden = forward(policy, *_padded(prompts, "left"), 1)
    return hidden[LAYER][:, -1][place].numpy()


class TrueValues:
    """The values of a policy's states, exact: what it earns on average from each on.

    In place of a critic. With a clock, what the policy would do is taken at one time of day for
    each state, so values are nearly exact.
    """

    def __init__(self, policy: Any, world: Any) -> None:
        self.policy, self.world = policy, world

    def values(self, steps: Sequence[Step]) -> Any:
        """The value of each step."""
        words, tasks = FirstWords(self.policy), {step.group for step in steps}
        of_task = {task: self.of_task(int(task), words) for task in sorted(tasks)}
        numbers = {task: self.world.graph_of(int(task)).numbers for task in tasks}
        return np.array(
            [of_task[s.group][s.step, numbers[s.group][true_state(s.state)]] for s in steps]
        )

    def of_task(self, task: int, words: FirstWords) -> Any:
        """The value of each state at each turn, [turns, states]; the end of the horizon is last."""
        world, graph = self.world, self.world.graph_of(task)
        (after, reward, over), prompts = graph.whole, graph.prompts
        if issubclass(world, Clock):
            rng = random.Random(task)
            prompts = [(*world.tokens.encode(time_of(rng.randrange(86_400))), *p) for p in prompts]
        ids = [world.tokens.ids[word] for word in world.words]
        chance = np.exp(words.logps_of(prompts)[:, ids].astype(np.float64))
        chance = np.column_stack([chance, 1 - chance.sum(1)])
        now, going = (chance * reward).sum(1), chance * ~over
        values = np.zeros((world.horizon + 1, len(prompts)))
        for turn in reversed(range(world.horizon)):
            values[turn] = now + (going * values[turn + 1][after]).sum(1)
        return values

    explained = ()

    def learn(self, steps: Sequence[Step], table: StepTable) -> None:
        """Nothing: the values are those of the policy as it is."""


class Critic:
    """A network of its own, of the policy's shape, that reads a prompt and predicts the return.

    As the critic of PPO, trained on the discounted returns of each batch after its values were
    used; a start from a copy of the policy.
    """

    def __init__(self, policy: Any, gamma: float, rate: float = 1e-3) -> None:
        self.body, self.gamma = copy.deepcopy(policy), gamma
        self.head = torch.nn.Linear(policy.config.hidden_size, 1)
        torch.nn.init.zeros_(self.head.weight)
        weights = [*self.body.model.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.Adam(weights, lr=rate)
        self.explained: list[float] = []

    def _values(self, prompts: Sequence[Any]) -> Any:
        out, _ = forward(self.body, *_padded(prompts, "left"), 1)
        return self.head(out[:, -1])[:, 0]

    @torch.no_grad()
    def values(self, steps: Sequence[Step]) -> Any:
        """The value of each step."""
        prompts, place = _distinct([step.prompt for step in steps])
        parts = [prompts[i : i + 512] for i in range(0, len(prompts), 512)]
        return torch.cat([self._values(part) for part in parts])[place].double().numpy()

    def learn(self, steps: Sequence[Step], table: StepTable, passes: int = 2) -> None:
        """Descend the squared error, in batches of 256 steps."""
        ordered = arrange(table)
        returns = np.zeros(len(steps))
        to_go = reward_to_go(ordered.reward, ordered.trajectory, self.gamma)
        returns[ordered.rows] = to_go
        error = np.mean((returns - table.value) ** 2)
        self.explained.append(float(1 - error / max(returns.var(), 1e-9)))
        rng = np.random.default_rng(len(steps))
        for _ in range(passes):
            for rows in np.array_split(rng.permutation(len(steps)), -(-len(steps) // 256)):
                self.optimizer.zero_grad()
                prompts, place = _distinct([steps[i].prompt for i in rows])
                value = self._values(prompts)[place]
                target = torch.tensor(returns[rows], dtype=torch.float32)
                ((value - target) ** 2).mean().backward()
                self.optimizer.step()
