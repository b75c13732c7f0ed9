"""Small tables whose credit can be computed by hand."""

import pytest

from ascribe import Reason, StepTable


def steps(*states, reward=0.0, invalid=()):
    """A trajectory through these states, paid at its end; ``invalid`` are step numbers."""
    last = len(states) - 1
    return [
        {"state": state, "reward": reward if t == last else 0.0, "valid": t not in invalid}
        for t, state in enumerate(states)
    ]


def table(groups, padding=()):
    """Groups of trajectories of steps; ``padding`` copies rows by number, as padding."""
    rows = []
    for g, trajectories in enumerate(groups):
        for i, trajectory in enumerate(trajectories):
            for t, step in enumerate(trajectory):
                name = {"group": f"task {g}", "trajectory": f"{g}/{i}", "step": t, "action": "go"}
                ended = {"truncated": False, "padding": False}
                rows.append(name | ended | step)
    rows += [rows[i] | {"padding": True} for i in padding]
    return StepTable.from_dicts(rows)


def cut(trajectory):
    """The same trajectory, ended by a limit."""
    return [*trajectory[:-1], trajectory[-1] | {"truncated": True}]


def reasons(reason):
    return [Reason(code).label for code in reason]


def close(values, wanted, tolerance=1e-5):
    assert values.tolist() == pytest.approx(wanted, abs=tolerance)


TWICE_ALONE = [[steps("s", "s", reward=1.0)]]


def success_after(delay, name):
    """One visit to the shared state, then success this many steps later."""
    states = ["shared", *[f"{name}{t}" for t in range(delay)]]
    return steps(*states, reward=10.0)


TWO_SUCCESSES = [[success_after(5, "x"), success_after(6, "y")]]


ALL_FAIL = [[steps("s", invalid=[0] if i == 0 else []) for i in range(8)]]


SHORT_AND_LONG = [[steps("a", reward=10.0), steps("b", "c", "d")]]


NOTHING_HAPPENS = [
    [steps("Nothing happens.", reward=1.0), steps("lamp")],
    [steps("Nothing happens."), steps("desk")],
]


TWO_GROUPS = [
    [steps("a", reward=4.0), steps("b", reward=2.0)],
    [steps("c"), steps("d", reward=2.0)],
]


# With gamma 1, returns are 4, 2 and 0 all along. All go through "b", two of them from "a".
THREE_WAYS = [
    [steps("a", "b", reward=4.0), steps("a", "b", reward=2.0), steps("c", "b")],
]
