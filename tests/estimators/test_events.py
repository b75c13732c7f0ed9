"""Credit by events: ``src/ascribe/estimators/events.py``, page ``docs/estimators/events.md``.

The reference below is written from the page: loops, no numpy beyond the solver.
"""

import json
import math
from collections import defaultdict
from random import Random
from typing import Any

import numpy as np
import pytest

from ascribe import Reason, StepTable, recipe
from ascribe.decisions.why import Reasons
from ascribe.groups.events import digests, folds_of
from ascribe.steps.check import arrange

Rows = list[dict[str, Any]]


def sessions(seed: int, tasks: int = 12, attempts: int = 5, noise: float = 0.1) -> Rows:
    """Agents that look things up and then write; a wrong write loses."""
    random, rows = Random(seed), Rows()
    for task in range(tasks):
        for attempt in range(attempts):
            wrong = random.random() < 0.5
            steps = [("user: please", "Hello.")]
            looks = range(random.randint(1, 3))
            steps += [("user: go on", ("look", random.randint(0, 3))) for _ in looks]
            if random.random() < 0.3:
                steps.append(("tool: found", ("write", -1)))
                steps.append(("tool: Error: refused", ("look", 9)))
            steps.append(("tool: found", ("write", random.randint(1, 4) if wrong else 0)))
            steps.append(("tool: done", "Bye."))
            won = (not wrong) != (random.random() < noise)
            for number, (state, action) in enumerate(steps):
                made = action
                if not isinstance(action, str):
                    made = json.dumps(
                        {"name": action[0], "arguments": {"task": task, "x": action[1]}}
                    )
                last = number == len(steps) - 1
                row = {"group": f"t{task}", "trajectory": f"t{task}/{attempt}", "step": number}
                rows.append(row | {"state": state, "action": made, "reward": float(won and last)})
    return rows


def table(rows: Rows) -> StepTable:
    return StepTable.from_dicts(rows)


class Reference:
    """The formulas of the page, call by call."""

    def __init__(self, rows: Rows, folds: int = 10, prior: float = 1.0) -> None:
        made = table(rows)
        steps = arrange(made)
        names = made.trajectory.take(steps.rows[steps.starts]).texts()
        fold = folds_of(digests(made), steps.group_of_trajectory, folds)
        self.fold = dict(zip(names, fold.tolist(), strict=True))
        self.folds, self.prior = folds, prior
        self.of: dict[str, Rows] = defaultdict(list)
        for row in rows:
            self.of[row["trajectory"]].append(row)
        self.task = {name: own[0]["group"] for name, own in self.of.items()}
        self.won = {name: sum(row["reward"] for row in own) for name, own in self.of.items()}
        self.calls: dict[str, list[tuple[int, tuple[str, str], bool, bool]]] = {}
        for name, own in self.of.items():
            seen: set[tuple[str, str]] = set()
            self.calls[name] = []
            for number, row in enumerate(own):
                if not row["action"].startswith("{"):
                    continue
                call = json.loads(row["action"])
                key = call["name"], json.dumps(call["arguments"], sort_keys=True)
                refused = number + 1 < len(own) and "Error" in own[number + 1]["state"]
                self.calls[name].append((number, key, refused, not refused and key in seen))
                if not refused:
                    seen.add(key)
        self.made = {
            name: {key for _, key, refused, _ in calls if not refused}
            for name, calls in self.calls.items()
        }
        self.tools = sorted({key[0] for calls in self.calls.values() for _, key, _, _ in calls})

    def unusual(self, name: str, key: tuple[str, str], held_out: int) -> float:
        others = [o for o in self.of if self.task[o] == self.task[name] and o != name]
        share = sum(key in self.made[o] for o in others) / len(others)
        seen = [o for o in others if self.fold[o] not in (self.fold[name], held_out)]
        wins = sum(self.won[o] for o in seen)
        with_call = sum(self.won[o] for o in seen if key in self.made[o])
        return 1 - (with_call + share) / (wins + 1)

    def columns(self, held_out: int) -> dict[str, dict[str, float]]:
        """The columns of each session, by name, and the unusualness beyond the tool's mean."""
        u = {
            (name, number): self.unusual(name, key, held_out)
            for name, calls in self.calls.items()
            for number, key, refused, again in calls
            if not refused and not again
        }
        mean = {
            tool: np.mean(
                [
                    u[n, k]
                    for n, calls in self.calls.items()
                    for k, key, r, a in calls
                    if not r and not a and key[0] == tool
                ]
            )
            for tool in self.tools
        }
        columns = {}
        for name, calls in self.calls.items():
            own: dict[str, float] = defaultdict(float)
            count: dict[str, int] = defaultdict(int)
            errors = 0
            for number, key, refused, again in calls:
                tool = key[0]
                if refused:
                    errors += 1
                    own["refused " + tool] += 1
                    own[f"error {min(errors, 8)}"] += 1
                elif not again:
                    count[tool] += 1
                    root = math.sqrt(count[tool]) - math.sqrt(count[tool] - 1)
                    own["used " + tool] += root
                    own["unusual " + tool] += root * (u[name, number] - mean[tool])
                    own["unusual"] += root * (u[name, number] - mean[tool])
            others = [o for o in self.of if self.task[o] == self.task[name]]
            seen = [o for o in others if self.fold[o] not in (self.fold[name], held_out)]
            wins = sum(self.won[o] for o in seen)
            own |= {"share": wins / max(len(others) - 1, 1), "any": float(wins > 0), "one": 1.0}
            columns[name] = own
        self.u, self.mean = u, mean
        return columns

    def weights(self, held_out: int) -> dict[str, float]:
        """The logistic regression without the fold, by plain gradient steps of Newton."""
        columns = self.columns(held_out)
        names = sorted({c for own in columns.values() for c in own})
        tasks = sorted(set(self.task.values()))
        train = [n for n in self.of if self.fold[n] != held_out]
        x = np.array(
            [
                [columns[n][c] for c in names] + [float(self.task[n] == t) for t in tasks]
                for n in train
            ]
        )
        y = np.array([self.won[n] for n in train])
        precision = np.array(
            [
                4.0 if c == "unusual" else 0.01 if c in ("share", "any", "one") else 1.0
                for c in names
            ]
            + [0.5] * len(tasks)
        )
        prior = np.array(
            [-self.prior if c == "unusual" else 0.0 for c in names] + [0.0] * len(tasks)
        )
        b = prior.copy()
        for _ in range(100):
            p = 1 / (1 + np.exp(-x @ b))
            hessian = (x * (p * (1 - p))[:, None]).T @ x + np.diag(precision)
            b = b + 0.5 * np.linalg.solve(hessian, x.T @ (y - p) - precision * (b - prior))
        return dict(zip(names, b.tolist(), strict=False))

    def worth(self, hazard: float) -> dict[tuple[str, int], float]:
        """What each step with a call is worth, before later mistakes count less."""
        value, found = {}, {}
        for held_out in range(self.folds):
            if held_out not in self.fold.values():
                continue
            weights = self.weights(held_out)
            for name in (n for n in self.of if self.fold[n] == held_out):
                for number, key, refused, again in self.calls[name]:
                    if refused:
                        errors = sum(r for k, _, r, _ in self.calls[name] if k <= number)
                        cost = weights["refused " + key[0]] + weights[f"error {errors}"]
                        found[name, number] = min(cost, 0.0)
                    elif not again:
                        cost = weights["unusual " + key[0]] + weights["unusual"]
                        beyond = self.u[name, number] - self.mean[key[0]]
                        value[name, number] = min(cost, 0.0) * beyond, key[0]
        outcome = np.array(list(self.won.values()))
        for (name, number), (v, tool) in value.items():
            of_tool = [other for other, t in value.values() if t == tool]
            z = (self.won[name] - outcome.mean()) / outcome.std()
            found[name, number] = v - np.mean(of_tool) + hazard * z * np.std(of_tool)
        return found


@pytest.mark.parametrize("seed", [0, 1])
def test_agrees_with_the_slow_reference(seed: int) -> None:
    rows = sessions(seed)
    credit = recipe("events", shuffles=0, later=0.0, hazard=1.5)(table(rows))
    worth = Reference(rows).worth(1.5)
    own = credit.terms["events"].own
    wanted = np.array([worth.get((row["trajectory"], row["step"]), 0.0) for row in rows])
    called = np.array([row["action"].startswith("{") for row in rows])
    scaled = wanted / wanted[called].std()
    np.testing.assert_allclose(own, scaled, rtol=1e-3, atol=1e-4)
    session = np.unique([row["trajectory"] for row in rows], return_inverse=True)[1]
    mean = np.bincount(session, scaled) / np.bincount(session)
    np.testing.assert_allclose(
        credit.terms["events"].values, scaled - mean[session], rtol=1e-3, atol=1e-4
    )


def test_later_mistakes_count_less() -> None:
    rows = sessions(3)
    plain = recipe("events", shuffles=0, later=0.0)(table(rows)).terms["events"].own
    less = recipe("events", shuffles=0, later=1.0)(table(rows)).terms["events"].own
    first: dict[str, int] = {}
    for k, row in enumerate(rows):
        if plain[k] < 0:
            first.setdefault(row["trajectory"], k)
    for k, row in enumerate(rows):
        at = first.get(row["trajectory"], k)
        ratio = less[k] / less[at] if less[at] else 0.0
        assert k == at or plain[k] >= 0 or ratio < plain[k] / plain[at]


def test_the_wrong_write_is_blamed() -> None:
    rows = sessions(0, tasks=40, noise=0.0)
    credit = recipe("events")(table(rows))
    assert credit.metrics["events_evidence"] > 0.9
    assert credit.metrics["events_prediction"] > credit.metrics["events_prediction_shuffled"]
    worst: dict[str, int] = {}
    for k, row in enumerate(rows):
        at = worst.setdefault(row["trajectory"], k)
        if credit.advantage[k] < credit.advantage[at]:
            worst[row["trajectory"]] = k
    wrong = [
        k
        for k, row in enumerate(rows)
        if '"write"' in row["action"] and json.loads(row["action"])["arguments"]["x"] > 0
    ]
    found = [worst[rows[k]["trajectory"]] == k for k in wrong]
    assert np.mean(found) > 0.9


def test_outcomes_that_say_nothing() -> None:
    tables = [table(sessions(seed, tasks=30, noise=0.5)) for seed in range(20)]
    evidence = [recipe("events")(made).metrics["events_evidence"] for made in tables]
    assert np.mean(np.array(evidence) > 0) <= 0.2, "a test at two standard errors"
    made = tables[evidence.index(0.0)]
    by_returns = recipe("events", fallback="returns")(made)
    assert not by_returns.terms["events"].values.any()
    np.testing.assert_array_equal(by_returns.advantage, recipe("grpo")(made).advantage)
    own = recipe("events")(made).terms["events"].own
    made_by = Reference(made.to_dicts())
    for k, row in enumerate(made.to_dicts()):  # by consensus: the share of others, and no more
        name, number = row["trajectory"], row["step"]
        keys = [key for at, key, refused, _ in made_by.calls[name] if at == number and not refused]
        others = [o for o in made_by.of if made_by.task[o] == row["group"] and o != name]
        share = [sum(key in made_by.made[o] for o in others) / len(others) - 1 for key in keys]
        assert own[k] == pytest.approx(-min(share, default=0.0) * own.min())


def test_the_mean_over_a_session_is_its_relative_return() -> None:
    rows = sessions(5)
    made = table(rows)
    grpo, credit = recipe("grpo")(made), recipe("events")(made)
    session = np.unique([row["trajectory"] for row in rows], return_inverse=True)[1]
    size = np.bincount(session)
    mean = np.bincount(session, credit.advantage) / size
    np.testing.assert_allclose(mean, np.bincount(session, grpo.advantage) / size, atol=1e-9)


def test_row_order_and_names_carry_no_meaning() -> None:
    rows = sessions(6)
    wanted = recipe("events")(table(rows)).advantage
    order = Random(0).sample(range(len(rows)), len(rows))
    got = recipe("events")(table([rows[k] for k in order])).advantage
    np.testing.assert_array_equal(got, wanted[order])
    names = sorted({row["trajectory"] for row in rows})
    tasks = sorted({row["group"] for row in rows})
    other = dict(zip(names, Random(1).sample(names, len(names)), strict=True))
    task = dict(zip(tasks, Random(2).sample(tasks, len(tasks)), strict=True))
    renamed = [
        row | {"trajectory": other[row["trajectory"]], "group": task[row["group"]]} for row in rows
    ]
    np.testing.assert_allclose(recipe("events")(table(renamed)).advantage, wanted, atol=1e-6)


def test_names_of_tools_carry_no_meaning() -> None:
    rows = sessions(7)
    renamed = [
        row | {"action": row["action"].replace('"look"', '"zap"').replace('"write"', '"eat"')}
        for row in rows
    ]
    by = recipe("events", shuffles=0, folds=100)  # folds depend on what was done: each its own
    np.testing.assert_allclose(by(table(renamed)).advantage, by(table(rows)).advantage, atol=1e-6)


def test_equal_costs_have_no_scale() -> None:
    """The rounding of equal values is no standard deviation."""
    rows = []
    for task in range(10):
        for attempt in range(4):
            name = ("verify", "guess")[attempt % 2]
            call = json.dumps({"name": name, "arguments": {"n": 1}})
            for step, action in enumerate([call, "done"]):
                row = {"group": f"{task}", "trajectory": f"{task}/{attempt}", "step": step}
                row |= {"state": "", "action": action, "reward": float(step and not attempt % 2)}
                rows.append(row)
    assert np.abs(recipe("events")(table(rows)).advantage).max() < 10


def test_an_event_of_all_sessions_earns_nothing() -> None:
    rows = sessions(8)
    for row in rows:
        if row["step"] == 0:
            row["action"] = json.dumps({"name": "greet", "arguments": {}})
    own = recipe("events", shuffles=0)(table(rows)).terms["events"].own
    greeted = np.array(["greet" in row["action"] for row in rows])
    np.testing.assert_allclose(own[greeted], 0.0, atol=1e-9)


def test_copies_of_sessions_do_not_tell_their_own_outcome() -> None:
    rows = sessions(9, tasks=30, noise=0.5)
    copies = [row | {"trajectory": row["trajectory"] + "b"} for row in rows]
    assert recipe("events")(table(rows + copies)).metrics["events_evidence"] < 0.8


def test_one_attempt_at_a_task() -> None:
    rows = [row for row in sessions(10) if row["trajectory"].endswith("/0")]
    credit = recipe("events")(table(rows))
    assert (credit.reason == Reason.GROUP_OF_ONE).all()
    assert not credit.advantage.any()


def test_versions_are_an_additive_effect() -> None:
    rows = sessions(11, tasks=40)
    strong = {row["trajectory"] for row in rows if row["trajectory"][-1] in "01"}
    for row in rows:
        row["version"] = "strong" if row["trajectory"] in strong else "weak"
        if row["trajectory"] in strong and row["step"] == 0:
            row["action"] = json.dumps({"name": "think", "arguments": {"x": row["trajectory"]}})
    own = recipe("events", shuffles=0, hazard=0.0)(table(rows)).terms["events"].own
    habit = np.array(["think" in row["action"] for row in rows])
    np.testing.assert_allclose(own[habit], 0.0, atol=1e-9)


@pytest.mark.parametrize(
    "rows",
    [
        [{"action": "hello"}, {"action": "bye"}],
        [{"action": None, "state": None}] * 2,
        [{"action": '{"name": "f", "arguments": {}}', "truncated": True}] * 2,
    ],
)
def test_tables_with_little(rows: Rows) -> None:
    whole = [
        {"group": "g", "trajectory": f"{k}", "step": 0, "state": "s", "reward": float(k)} | row
        for k, row in enumerate(rows)
    ]
    for options in ({}, {"truncation": "exclude"}, {"memory": 0.5}):
        credit = recipe("events", **options)(table(whole))
        assert np.isfinite(credit.advantage).all()


def test_the_explanation_counts_others() -> None:
    credit = recipe("events")(table(sessions(12)))
    said = credit.terms["events"].why()
    assert any("other attempts at this task made this call" in each for each in said)
    assert any("the environment refused it" in each for each in said)


def test_memory_keeps_what_was_learned() -> None:
    by = recipe("events", memory=0.9, shuffles=2, every=2)
    first = by(table(sessions(0, tasks=40, noise=0.0)))
    history = json.loads(json.dumps(first.history))
    assert history["iteration"] == 1
    few = sessions(1, tasks=3)
    with_memory = by(table(few), history=history)
    assert "events_prediction" not in with_memory.metrics, "not in every iteration"
    assert with_memory.metrics["events_evidence"] == first.metrics["events_evidence"]
    third = by(table(few), history=with_memory.history)
    assert "events_prediction" in third.metrics
    learned = first.history["known"]["unusual write"][0] if first.history else 0.0
    kept = with_memory.history["known"]["unusual write"][0] if with_memory.history else 0.0
    alone = recipe("events", memory=0.9)(table(few)).history
    assert alone is not None
    assert abs(kept - learned) < abs(alone["known"]["unusual write"][0] - learned)
    with pytest.raises(ValueError, match="no memory of events"):
        by(table(few), history={"tasks": {}})


def test_the_costly_step_is_told_in_words() -> None:
    made = table(sessions(0))
    why = Reasons(made)
    rows = [made.to_dicts()[row] for row in why.steps.rows.tolist()]
    said = [why.of(place) for place in range(len(rows))]
    assert all(text == "" for text, row in zip(said, rows, strict=True) if row["action"] == "Bye.")
    refused = [text for text, row in zip(said, rows, strict=True) if '"x": -1' in row["action"]]
    assert {text.partition(",")[0] for text in refused} == {"this call was refused"}
    rare = [
        text for text in said if text.startswith("no other attempt at this task made this call")
    ]
    assert any("sessions with a `write` that no other made won" in text for text in rare)
    assert any(text.startswith("2 of 4 other attempts at this task") for text in said)
