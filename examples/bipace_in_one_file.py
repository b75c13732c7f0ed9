"""Step-level credit from rollout to update, in one file: read it from top to bottom.

A tiny Llama (one million weights, a vocabulary of words) first copies clumsy demonstrations of
eight crafting games, then improves by reinforcement learning. Every iteration plays 8 episodes of
each game, credits every step and takes two steps of clipped policy gradient. Ascribe is not
imported: it has these estimators with options, checks and reasons, and a test compares the two.

    OMP_NUM_THREADS=1 python examples/bipace_in_one_file.py --recipe gigpo --out curve.jsonl
"""

import argparse
import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

# 1. The world: a part of TextCraft. Its recipes and commands are real, its answers shortened.

SHARED = "craft 4 oak planks using 1 oak log; craft 4 stick using 2 oak planks"
GAMES = """
craft 1 stone sword using 2 cobblestone, 1 stick; craft 6 cobblestone slab using 3 cobblestone
craft 1 stone pickaxe using 3 cobblestone, 2 stick; craft 1 furnace using 8 cobblestone
craft 1 lever using 1 cobblestone, 1 stick; craft 1 oak button using 1 oak planks
craft 4 torch using 1 coal, 1 stick; craft 1 crafting table using 4 oak planks
craft 1 bow using 3 stick, 3 string; craft 4 bowl using 3 oak planks
craft 1 fishing rod using 3 stick, 2 string; craft 1 loom using 2 string, 2 oak planks
craft 3 ladder using 7 stick; craft 1 oak pressure plate using 2 oak planks
craft 3 oak fence using 4 oak planks, 2 stick; craft 6 oak slab using 3 oak planks
""".strip().splitlines()  # of each game: the recipe of its goal, and one that is of no use
HORIZON = 12  # commands in an episode; five are enough in every game
NOISE = ["You see: {}", "{} A cow moos.", "{} It is getting dark.", "{} Rain begins to fall."]


def counted(text):
    """The items of '2 cobblestone, 1 stick', each with its number."""
    return {item.strip(): int(number) for number, item in re.findall(r"(\d+) ([a-z ]+)", text)}


class TextCraft:
    """One game: fetch what cannot be crafted, craft the rest, until the goal is there."""

    def __init__(self, game, rng):
        self.recipes = f"{GAMES[game]}; {SHARED}".split("; ")
        parts = [re.split(r" (\d+) (.+) using ", recipe) for recipe in self.recipes]
        self.makes = {item: (int(number), counted(used)) for _, number, item, used in parts}
        self.fetched = sorted({i for _, used in self.makes.values() for i in used} - {*self.makes})
        self.goal, self.rng, self.has, self.done = next(iter(self.makes)), rng, Counter(), False
        self.prefix = f"Crafting commands: {'. '.join(self.recipes)}. Goal: craft {self.goal}."
        self.seen, self.before = "You are ready.", ["nothing", "nothing"]

    def inventory(self):
        """What the agent carries, in any order: the state by which steps are grouped."""
        items = [f"[{item}] ({number})" for item, number in sorted(self.has.items()) if number]
        self.rng.shuffle(items)
        return "Inventory: " + (" ".join(items) or "You are not carrying anything.")

    def step(self, command):
        """Obey, and pay 1 for the goal. One answer in five comes in other words."""
        answer = self._obey(command)
        self.seen = self.rng.choice(NOISE).format(answer) if self.rng.random() < 0.2 else answer
        self.before, self.done = [self.before[1], command], self.has[self.goal] > 0
        return float(self.done)

    def _obey(self, command):
        if found := re.fullmatch(r"get (\d+) ([a-z ]+)", command):
            number, item = int(found[1]), found[2]
            if item not in self.fetched or number == 0:
                return f"Could not find {item}"
            self.has[item] += number
            return f"Got {number} {item}"
        if found := re.fullmatch(r"craft (\d+) ([a-z ]+?) using (.+)", command):
            number, item, used = int(found[1]), found[2], counted(found[3])
            if self.makes.get(item) != (number, used):
                return f"Could not find a valid recipe for {item}"
            if any(self.has[part] < needed for part, needed in used.items()):
                return f"Could not find enough items to craft {item}"
            self.has.subtract(used)
            self.has[item] += number
            return f"Crafted {number} {item}"
        return self.inventory() if command == "inventory" else "Could not execute"

    def expert(self, item=None):
        """A command that leads to the goal; sticks come before planks, which they use up."""
        item = item or self.goal
        for part, needed in sorted(self.makes[item][1].items(), reverse=True):
            if (missing := needed - self.has[part]) > 0:
                return self.expert(part) if part in self.makes else f"get {missing} {part}"
        return next(recipe for recipe in self.recipes if f" {item} using" in recipe)


# 2. The policy, and episodes.

WORDS = re.compile(r"[a-z]+|\d+|,")
SPOKEN = """crafting commands goal inventory you are not carrying anything before nothing ready get
action could not find a valid recipe for enough items to craft execute got crafted"""
KNOWN = WORDS.findall(" ".join([SPOKEN, SHARED, *GAMES, *NOISE, *map(str, range(33))]).lower())
VOCABULARY = ["<end>", "<unknown>", *sorted({*KNOWN})]
NUMBER_OF = {word: number for number, word in enumerate(VOCABULARY)}
SIZES = {"hidden_size": 160, "intermediate_size": 480, "num_hidden_layers": 3}
SIZES |= {"num_attention_heads": 5, "num_key_value_heads": 5}
END, UNKNOWN, LONGEST = 0, 1, 14  # two numbers of words; most words of an action


def encode(text):
    """The numbers of the words of a text."""
    return [NUMBER_OF.get(word, UNKNOWN) for word in WORDS.findall(text.lower())]


@dataclass
class Step:
    """One decision: a row of the table of steps, and what the update must know of it."""

    group: str
    trajectory: str
    step: int
    state: str
    action: str = ""
    reward: float = 0.0
    prompt: list = field(default_factory=list)  # tokens that follow the prefix of the game
    tokens: list = field(default_factory=list)  # the action, its end counted
    logps: list = field(default_factory=list)  # of the tokens, when they were sampled
    fingerprint: np.ndarray | None = None  # a hidden state of the policy at the end of the prompt


def padded(rows, side):
    """Rows of one length, and a mask that is 1 where they are real."""
    ids = pad_sequence([torch.tensor(row) for row in rows], True, -1, side)
    return ids.clamp(min=0), (ids >= 0).long()


def read_prefixes(policy):
    """Keys and values of what all prompts of a game begin with: read once, shared by its steps."""
    ids, mask = padded([encode(TextCraft(g, None).prefix) for g in range(len(GAMES))], "right")
    layers = policy.model(ids, attention_mask=mask, use_cache=True).past_key_values.layers
    return [(layer.keys, layer.values) for layer in layers], mask


def read(policy, prefixes, steps, answers=None):
    """Read the prompts of steps, and answers if given, each after the prefix of its game."""
    (layers, mask), games, cache = prefixes, [int(row.group) for row in steps], DynamicCache()
    for number, (keys, values) in enumerate(layers):
        cache.update(keys[games], values[games], number)
    ids, real = padded([row.prompt for row in steps], "left")
    mask = torch.cat([mask[games], real], 1)
    if answers is not None:
        ids, mask = (torch.cat(pair, 1) for pair in zip((ids, mask), answers, strict=True))
    at = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    place = {"attention_mask": mask, "position_ids": at, "past_key_values": cache}
    return policy.model(ids, **place, output_hidden_states=answers is None), mask


def act(policy, prefixes, steps, generator):
    """Sample an action for every step; keep its log-probabilities and the policy's hidden state."""
    out, mask = read(policy, prefixes, steps)
    fingerprints = out.hidden_states[-2][:, -1].numpy()
    said, logps = torch.zeros(len(steps), 0, dtype=torch.long), torch.zeros(len(steps), 0)
    while said.shape[1] < LONGEST and not (said == END).any(1).all():
        if said.shape[1]:
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
            place = {"attention_mask": mask, "position_ids": mask.sum(1, keepdim=True) - 1}
            out = policy.model(said[:, -1:], **place, past_key_values=out.past_key_values)
        logp = policy.lm_head(out.last_hidden_state[:, -1]).log_softmax(-1)
        word = torch.multinomial(logp.exp(), 1, generator=generator)
        said, logps = torch.cat([said, word], 1), torch.cat([logps, logp.gather(1, word)], 1)
    for i, row in enumerate(steps):
        length = [*said[i].tolist(), END].index(END)
        words = " ".join(VOCABULARY[t] for t in said[i, :length])
        row.action = words.replace(" ,", ",") or "nothing"
        row.tokens, row.logps = said[i, : length + 1].tolist(), logps[i, : length + 1].tolist()
        row.fingerprint = fingerprints[i]


def play(choose, each, seed):
    """``each`` episodes of every game; their steps by group, trajectory and step."""
    names = [f"{game}/{number:03}" for game in range(len(GAMES)) for number in range(each)]
    worlds = {name: TextCraft(int(name[0]), random.Random(f"{seed} {name}")) for name in names}
    steps = []
    for t in range(HORIZON):
        rows = []
        for name, world in worlds.items():
            if not world.done:
                state = world.inventory()
                prompt = f"Before: {', '.join([*world.before, world.seen, state])} Action:"
                rows.append(Step(name[0], name, t, state, prompt=encode(prompt)))
        if not rows:
            break
        choose(rows, worlds)
        for row in rows:
            row.reward = worlds[row.trajectory].step(row.action)
        steps += rows
    return sorted(steps, key=lambda row: (row.group, row.trajectory, row.step))


@torch.no_grad()
def play_policy(policy, each, seed):
    """Episodes of the policy, and the share of them that reached the goal."""
    generator = torch.Generator().manual_seed(random.Random(seed).getrandbits(32))
    prefixes = read_prefixes(policy)
    steps = play(lambda rows, _: act(policy, prefixes, rows, generator), each, seed)
    return steps, sum(row.reward for row in steps) / (each * len(GAMES))


# 3. Credit. Steps come in the order of group, trajectory and step.

GAMMA, RADIUS = 0.95, 0.003  # discount of returns; radius of a cluster of states


def members(keys):
    """The rows that share a key, for every key."""
    found = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return [np.array(rows) for rows in found.values()]


def standardised(values, keys):
    """``(x - mean) / std`` among the rows that share a key; 0 where there is nothing to compare."""
    out = np.zeros(len(values))
    for rows in members(keys):
        x = values[rows]
        if len(x) > 1 and np.ptp(x) > 1e-12 * np.abs(x).max():  # more than rounding
            out[rows] = (x - x.mean()) / (x.std(ddof=1) + 1e-6)
    return out


def returns_of(steps, value=None, trust=None):
    """``G = r + γ ((1 - λ) V' + λ G')``, ' for the next step; without V and λ, the plain return."""
    out = np.array([row.reward for row in steps])
    value, trust = (out, np.ones(len(steps))) if value is None else (value, trust)
    for i in reversed(range(len(steps) - 1)):
        if steps[i].trajectory == steps[i + 1].trajectory:
            out[i] += GAMMA * ((1 - trust[i + 1]) * value[i + 1] + trust[i + 1] * out[i + 1])
    return out


def grpo(steps, **_):
    """The return of a trajectory among those of its game, the same for all of its steps."""
    starts = [i for i, row in enumerate(steps) if row.step == 0]
    total = np.add.reduceat([row.reward for row in steps], starts)
    values = standardised(total, [steps[i].group for i in starts])
    return np.repeat(values, np.diff([*starts, len(steps)]))


def gigpo(steps, **_):
    """``grpo``, and the return from a step on among visits to the same state."""
    return grpo(steps) + standardised(returns_of(steps), [(r.group, r.state) for r in steps])


def clusters(steps, fingerprints, radius, on_collapse="exact"):
    """A label for the state of each step: greedy cosine clustering (BiPACE, Algorithm 1)."""
    unit = fingerprints / np.linalg.norm(fingerprints.astype(float), axis=1, keepdims=True)
    labels = [None] * len(steps)
    for rows in members([row.group for row in steps]):
        centroids, sizes = [], []
        for i, x in zip(rows, unit[rows], strict=True):
            near = np.array(centroids) @ x if centroids else np.array([-2.0])
            j = int(near.argmax())
            if 1 - near[j] <= radius + 1e-6:
                sizes[j] += 1
                moved = centroids[j] + (x - centroids[j]) / sizes[j]
                centroids[j] = moved / np.linalg.norm(moved)
            else:
                j = len(centroids)
                centroids, sizes = [*centroids, x], [*sizes, 1]
            labels[i] = (steps[i].group, j)
        collapsed = max(sizes) >= max(0.95 * len(rows), 2) and on_collapse == "exact"
        if collapsed and len({steps[i].state for i in rows}) > 1:
            for i in rows:  # one cluster for all would tell nothing apart: back to the texts
                labels[i] = (steps[i].group, steps[i].state)
    return labels


def bipace_q(steps, fingerprints, radius):
    """``grpo``, and Q - V: peers with the same action in a state against all peers in it."""
    returns, step_term = returns_of(steps), np.zeros(len(steps))
    for rows in members(clusters(steps, fingerprints, radius)):
        for same in members([steps[i].action for i in rows]) if len(rows) > 1 else []:
            # An action that nobody else took is compared with the mean of the others.
            peers, baseline = rows[same], rows if len(same) > 1 else np.delete(rows, same)
            step_term[peers] = returns[peers].mean() - returns[baseline].mean()
    return grpo(steps) + step_term


def backed_off(values, levels):
    """Means of groups, shrunk by κ, each of what the levels before it have left."""
    out = np.zeros(len(values))
    for keys, kappa in levels:
        rest = values - out
        for rows in members(keys):
            out[rows] += rest[rows].sum() / (len(rows) + kappa)
    return out


def sbc(steps, fingerprints, radius):
    """Shrunken back-off credit: a mean counts as far as its group is large."""
    task, state = [row.group for row in steps], clusters(steps, fingerprints, radius)
    fine = list(zip(state, clusters(steps, fingerprints, 0.3 * radius, "keep"), strict=True))
    history = [(s, state[i - 1] if steps[i].step else None) for i, s in enumerate(state)]
    boot, size, inside = returns_of(steps), Counter(state), [(fine, 2), (history, 4)]
    trust = np.array([2 / (size[s] + 2) for s in state])
    for _ in range(2):  # values from returns, and returns from values
        value = backed_off(boot, [(task, 0), (state, 2), *inside])
        boot = returns_of(steps, value, trust)
    above = boot - backed_off(boot, [(state, 0), *inside])  # differences inside a state
    taken = [
        ([*zip(k, [r.action for r in steps], strict=True)], n) for k, n in [(state, 1), *inside]
    ]
    credit, own = backed_off(above, taken), returns_of(steps)
    credit += (own - backed_off(own, [(task, 0)])) / 6
    several = Counter(row.group for row in steps if row.step == 0)
    return np.where([several[t] > 1 for t in task], credit, 0.0)  # one attempt tells nothing


ESTIMATORS = {"grpo": grpo, "gigpo": gigpo, "bipace_q": bipace_q, "sbc": sbc}

# 4. Learning.


def climb(policy, optimizer, steps, advantage=None):
    """One step of the optimiser: up the clipped gain, or without advantages, up the likelihood."""
    order = sorted(range(len(steps)), key=lambda i: len(steps[i].prompt))  # little is padding
    optimizer.zero_grad()
    for start in range(0, len(order), 160):
        rows = order[start : start + 160]
        part = [steps[i] for i in rows]
        ids, real = padded([row.tokens for row in part], "right")
        out, _ = read(policy, read_prefixes(policy), part, (ids, real))
        hidden = out.last_hidden_state[:, -ids.shape[1] - 1 : -1]
        gain = policy.lm_head(hidden).log_softmax(-1).gather(2, ids[:, :, None])[:, :, 0]
        if advantage is not None:
            ratio = (gain - pad_sequence([torch.tensor(row.logps) for row in part], True)).exp()
            earned = torch.tensor(advantage[rows], dtype=torch.float32)[:, None]
            gain = torch.minimum(ratio * earned, ratio.clamp(0.8, 1.2) * earned)
        (-(gain * real).sum() / sum(len(row.tokens) for row in steps)).backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def clone(seed, updates=120, noise=0.6):
    """A new policy that copies somebody who knows the way, and strays in a share of the steps."""

    def demonstrate(rows, worlds):
        for row in rows:
            world, rng = worlds[row.trajectory], worlds[row.trajectory].rng
            fetch = f"get {rng.randint(1, 4)} {rng.choice(world.fetched)}"
            stray = rng.choice([fetch, rng.choice(world.recipes), "inventory"])
            row.action = stray if rng.random() < noise else world.expert()
            row.tokens = [*encode(row.action), END]

    torch.manual_seed(seed)
    policy = LlamaForCausalLM(LlamaConfig(vocab_size=len(VOCABULARY), **SIZES))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for number in range(updates):
        climb(policy, optimizer, play(demonstrate, 2, f"clone {seed} {number}"))
    return policy


def train(policy, recipe, seed, *, iterations, radius=RADIUS, held_out=16, every=5):
    """Reinforcement learning. Yields one line of the learning curve for each iteration."""
    optimizer, rng = torch.optim.Adam(policy.parameters(), lr=2e-4), np.random.default_rng(seed)
    for number in range(iterations + 1):
        line = {"recipe": recipe, "seed": seed, "iteration": number}
        if number % every == 0 or number == iterations:
            _, line["held_out_success"] = play_policy(policy, held_out, f"test {seed} {number}")
        if number < iterations:
            steps, line["success"] = play_policy(policy, 8, f"train {seed} {number}")
            fingerprints = np.stack([row.fingerprint for row in steps])
            advantage = ESTIMATORS[recipe](steps, fingerprints=fingerprints, radius=radius)
            for half in np.array_split(rng.permutation(len(steps)), 2):
                climb(policy, optimizer, [steps[i] for i in half], advantage[half])
        yield line


def main():
    """Clone and train; print the learning curve and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--recipe", choices=ESTIMATORS, default="bipace_q")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--radius", type=float, default=RADIUS, help="of a cluster of states")
    parser.add_argument("--out", type=Path, default="curve.jsonl", help="file for the curve")
    options = vars(parser.parse_args())
    torch.set_num_threads(1)
    policy = clone(options["seed"])
    with options.pop("out").open("w") as file:
        for line in train(policy, **options):
            print(json.dumps(line), flush=True)
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
