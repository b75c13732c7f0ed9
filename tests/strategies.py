"""Random step tables and random recipes.

Rewards and penalties are multiples of 2**-20 of moderate size, so that sums of rewards are exact
in floating point: two trajectories that earned the same on paper earned the same in bits, and a
reason can be checked exactly. Discounts are arbitrary.

Tables and recipes are read from drawn bytes. That is many times cheaper than one draw for each
number, and still shrinks: fewer bytes are fewer rows, and a zero byte is the plainest choice.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from ascribe import RECIPES, Recipe, StepTable
from ascribe.steps.table import INPUT_COLUMNS

STATES = ("You are in the hall.", "Nothing happens.", "shelf 1: a mug", "shelf 2: a mug")
"""Few, so that trajectories meet."""

TEXTS = ("a", "ab", "ba", "aab", "abb", "abab", "aabb", "abcab", "acbac", "bcabc", "aaaaa", "")
"""Short texts, some of them similar."""

REWARDS = (0.0, 1.0, 0.5, -1.0, 10.0, -0.25)
"""Few, so that trajectories tie."""

CHOICES: dict[str, tuple[Any, ...]] = {
    # 0.1 is no multiple of 2**-20: sums of it are rounded, so it comes after discounting only.
    "penalty": (
        ("before", 0.0),
        ("before", 0.25),
        ("before", 5 * 2.0**-20),
        ("after", 0.0),
        ("after", 0.25),
        ("after", 0.1),
    ),
    "truncation": ("end", "exclude"),
    "std": ("sample", "population"),
    "std_epsilon": (1e-6, 0.0, 1e-4, 0.5),
    "std_floor": (0.0, 0.0, 0.03, 0.5, 2.0),
    "gamma": (0.95, 1.0, 0.5, 0.0, 0.9, 0.99, 0.713, 0.2),
    "weight": (1.0, 0.5, 0.0, 3.7),
    "normalise": ("std", "mean"),
    "grouping": ("exact", "similar"),
    "similarity": (0.9, 0.5, 2 / 3, 0.8, 1.0, 0.75, 0.0),
    "scope": ("group", "batch"),
    "baseline_unit": ("trajectory", "step"),
    "group_of_one": ("no_credit", "raw"),
    "revisits": ("each", "first", "average"),
    "history_length": (2, 0, 1, 3),
    "alpha": (1.0, 0.0, -0.5, 2.0),
    "episode": (False, True),
    "drop_zeros": (False, True),
    "lam": (0.95, 1.0, 0.0, 0.5),
    "bootstrap": (True, False),
    "right": (1.0, 0.5, 10.0, -1.0),
    "goal": (1.0, 10.0, 0.5),
    "compare": ("returns", "turn"),
    "k": (1.0, 0.0, 3.5),
    "clarity": (0.1, 0.0, 2.0),
    "k_next": (1.0, 0.0, 0.5),
}
"""What random parameters are taken from."""

INPUTS = (0.0, 1.0, 0.5, -0.25, 2.0)
"""What critics, judges and scores say; 1 in 12 is missing."""

BASELINES = {
    "reinforce_pp": ("batch", "group"),
    "returns": ("task", "turn"),
    "progress": ("task", "rewards", "separate"),
}
"""What the parameter ``baseline`` is taken from, by recipe."""


def _bytes(smallest: int, largest: int, each: int = 1) -> st.SearchStrategy[bytes]:
    """Bytes for ``smallest`` to ``largest`` things, every number alike."""
    count = st.integers(smallest, largest)
    return count.flatmap(lambda n: st.binary(min_size=each * n, max_size=each * n))


@st.composite
def step_tables(
    draw: st.DrawFn,
    *,
    states: Sequence[str] = STATES,
    rewards: Sequence[float] | None = None,
    missing: bool = True,
    padding: bool = True,
    most_rows: int = 30,
) -> StepTable:
    """A table that recipes accept, its rows in any order.

    Args:
        draw: hypothesis draws with it.
        states: the texts that states are taken from.
        rewards: what rewards are taken from; by default the small set and three of any size.
        missing: whether states may be missing.
        padding: whether padding rows may be there.
        most_rows: most rows that are not padding.
    """
    numbers = draw(_bytes(1, most_rows, each=3))
    random = Random(draw(st.integers(0, 2**32 - 1)))
    seen = (*states, None) if missing else tuple(states)
    fine = [random.randint(-100 * 2**18, 100 * 2**18) / 2**18 for _ in range(3)]
    paid = (*REWARDS, *fine) if rewards is None else tuple(rewards)

    # Names sort otherwise than they were drawn, and "10" comes before "9".
    names = [str(number) for number in random.sample(range(150), 2 * most_rows)]
    task, trajectory, t = f"task {names.pop()}", names.pop(), 0
    rows: list[dict[str, Any]] = []
    for where, what, end in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        last = end % 4 == 3 or len(rows) == len(numbers) // 3 - 1
        cut = last and end // 4 % 3 == 2
        rows.append(
            {
                "group": task,
                "trajectory": trajectory,
                "step": t,
                "state": seen[where % len(seen)],
                "action": random.choice(("go", "take", "look", None)),
                "reward": paid[what % len(paid)],
                "valid": what // len(paid) % 3 != 2,
                "terminated": last and not cut,
                "truncated": cut,
                "padding": False,
            }
            | {
                name: random.choice(INPUTS) if random.random() > 1 / 12 else None
                for name in INPUT_COLUMNS
            }
        )
        t += 1
        if last:
            trajectory, t = names.pop(), 0
            if end // 12 % 4 == 3:
                task = f"task {names.pop()}"

    if padding:
        rows += padding_rows(rows, random, random.choice((0, 1, 4)))
    random.shuffle(rows)
    for name in INPUT_COLUMNS:  # a column that is empty everywhere would be absent
        if rows[0][name] is None:
            rows[0][name] = 0.0
    absent = [
        flag
        for flag, default in (("valid", True), ("truncated", False), ("padding", False))
        if all(row[flag] is default for row in rows)
    ]
    for flag in ("terminated", *absent):
        if random.random() < 0.5:
            for row in rows:
                del row[flag]
    return StepTable.from_dicts(rows)


def padding_rows(
    rows: Sequence[dict[str, Any]], random: Random, count: int
) -> list[dict[str, Any]]:
    """Copies of rows and rows of garbage, marked as padding, with the columns that ``rows`` has."""
    out = []
    for _ in range(count):
        filler = dict(random.choice(rows))
        if random.random() < 0.5:
            garbage = {
                "group": random.choice((filler["group"], "", "zzz", None)),
                "trajectory": random.choice((filler["trajectory"], "", "zzz", None)),
                "step": random.choice((0, -1, 10**9, None)),
                "state": random.choice((filler["state"], "nowhere", None)),
                "reward": random.choice((float("nan"), float("inf"), 1e300, -7.0)),
                "truncated": random.random() < 0.5,
            }
            filler.update({name: value for name, value in garbage.items() if name in filler})
        out.append(filler | {"padding": True})
    return out


def recipes(name: str, **fixed: Any) -> st.SearchStrategy[Recipe]:
    """The recipe with random parameters, but for the ``fixed`` ones, where it has them."""
    kind = RECIPES[name]
    known = ("penalty", *kind.__dataclass_fields__)
    if name.startswith("bipace"):
        fixed["revisits"] = "each"  # it takes no other
    fixed = {key: value for key, value in fixed.items() if key in known}
    choices = CHOICES | {"baseline": BASELINES.get(name, ())}
    free = {key: values for key, values in choices.items() if key in known and key not in fixed}

    def build(numbers: bytes) -> Recipe:
        picked = {
            key: values[number % len(values)]
            for number, (key, values) in zip(numbers, free.items(), strict=True)
        }
        timing, amount = picked.pop("penalty")
        if (not kind.credits_steps or name == "entropy") and timing == "after":
            timing, amount = "before", 0.0
        return kind(penalty_timing=timing, invalid_penalty=amount, **picked, **fixed)

    return st.binary(min_size=len(free), max_size=len(free)).map(build)
