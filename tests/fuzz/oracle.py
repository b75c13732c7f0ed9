"""What a file of rollouts says, read in the plainest way, and its GiGPO advantages.

No numpy and nothing of Ascribe: dictionaries, loops and ``math.fsum``. ``advantages`` returns None
where the rows leave no right answer, so that both what is answered and what is refused can be
compared.
"""

import json
import math
from typing import Any

Row = dict[str, Any]

REQUIRED = ("group", "trajectory", "step", "state", "action", "reward")
TEXTS = ("group", "trajectory", "state", "action", "agent", "family")
FLAGS = ("valid", "terminated", "truncated", "padding")
GAMMA, EPSILON = 0.95, 1e-6


def parse_lines(data: bytes) -> list[Row] | None:
    """The objects of a file of JSON lines, or None if a line is not one object or it was cut."""
    rows = []
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8"), object_pairs_hook=_object)
        except (ValueError, RecursionError):
            return None
        if not isinstance(row, dict):
            return None
        rows.append(row)
    return _counted(rows)


def _counted(rows: list[Row]) -> list[Row] | None:
    """The rows up to each end mark, if there are as many as it says; all of them without a mark."""
    mark, counted, part = "ascribe.step_table", [], list[Row]()
    if all(mark not in row for row in rows):
        return rows
    for row in rows:
        version = row.pop(mark, "1")
        if version != "1":
            return None
        if list(row) != ["rows"]:
            part.append(row)
        elif row["rows"] == len(part):
            counted, part = counted + part, []
        else:
            return None
    return None if part else counted


def _object(pairs: list[tuple[str, Any]]) -> Row:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def advantages(rows: list[Row]) -> list[float] | None:
    """GiGPO of the paper for every row, 0 where there is no credit; None if there is no answer."""
    if not _well_typed(rows):
        return None
    real = [i for i, row in enumerate(rows) if row.get("padding") is not True]
    trajectories: dict[Any, dict[int, int]] = {}
    for i in real:
        row = rows[i]
        if row.get("group") is None or row.get("trajectory") is None or row.get("step") is None:
            return None
        reward = row.get("reward")
        if reward is None or not math.isfinite(reward) or abs(reward) > 1e100:
            return None
        places = trajectories.setdefault(row["trajectory"], {})
        if row["step"] in places:
            return None
        places[row["step"]] = i
    if not trajectories:
        return None

    returns, to_go, of_group = {}, {}, {}
    for name, places in trajectories.items():
        if sorted(places) != list(range(len(places))):
            return None
        steps = [places[step] for step in range(len(places))]
        if len({rows[i]["group"] for i in steps}) > 1:
            return None
        if any(rows[i].get("terminated") or rows[i].get("truncated") for i in steps[:-1]):
            return None
        returns[name] = math.fsum(float(rows[i]["reward"]) for i in steps)
        of_group.setdefault(rows[steps[0]]["group"], []).append(name)
        follows = 0.0
        for i in reversed(steps):
            follows = to_go[i] = float(rows[i]["reward"]) + GAMMA * follows

    answer = [0.0] * len(rows)
    for names in of_group.values():
        for name, value in zip(names, _relative([returns[name] for name in names]), strict=True):
            for i in trajectories[name].values():
                answer[i] += value
    of_state: dict[Any, list[int]] = {}
    for i in real:
        if rows[i].get("state") is not None:
            of_state.setdefault((rows[i]["group"], rows[i]["state"]), []).append(i)
    for members in of_state.values():
        for i, value in zip(members, _relative([to_go[i] for i in members]), strict=True):
            answer[i] += value
    return answer


def _relative(values: list[float]) -> list[float]:
    if len(values) < 2 or min(values) == max(values):
        return [0.0] * len(values)
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return [(value - mean) / (math.sqrt(variance) + EPSILON) for value in values]


def _well_typed(rows: list[Row]) -> bool:
    """Whether every column has one of the types that the format allows for it."""
    names = {name for row in rows for name in row}
    if not all(name in names for name in REQUIRED) or not all(map(_is_unicode, names)):
        return False
    for name in TEXTS:
        kinds = {type(row.get(name)) for row in rows} - {type(None)}
        if kinds not in ({str}, {int}, set()):
            return False
        if not all(_is_unicode(row[name]) for row in rows if isinstance(row.get(name), str)):
            return False
    for name in FLAGS:
        if {type(row.get(name)) for row in rows} not in ({bool}, {type(None)}):
            return False
    vectors = [row["fingerprint"] for row in rows if row.get("fingerprint") is not None]
    if not all(map(_is_vector, vectors)) or len({len(vector) for vector in vectors}) > 1:
        return False
    return all(
        type(row.get("step")) in (int, type(None))
        and type(row.get("reward")) in (int, float, type(None))
        and -(2**63) <= (row.get("step") or 0) < 2**63
        and not (type(row.get("reward")) is int and abs(row["reward"]) >= 2**1024)
        for row in rows
    )


def _is_vector(value: Any) -> bool:
    """Whether this is a list of numbers that single precision can hold."""
    if type(value) is not list or not value:
        return False
    return all(type(number) in (int, float) and abs(number) < 3.4e38 for number in value)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
