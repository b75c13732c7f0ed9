"""What an environment returned, checked and reduced to plain data.

Environments are other people's code. What they return may be of any type, and reading it may run
their code, so it is read here, next to the environment, and only text, numbers, truth values, lists
and dicts leave.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from ascribe.envs import INFO_KEYS, Info
from ascribe.rollout.pools.pool import Told
from ascribe.steps.columns import encodable
from ascribe.steps.problems import printable

DROPPED = "dropped"
"""The key of info under which the keys are listed that were not plain data."""
DEEPEST = 20
"""Lists and dicts nested deeper than this are not plain data: they may hold themselves."""
LONGEST_DETAIL = 500

Value = TypeVar("Value")


class Malformed(ValueError):  # noqa: N818 (named for what is wrong)
    """An environment returned something that is no valid answer."""


def began(returned: object, seconds: float) -> Told:
    """What ``reset`` returned: observation and info."""
    observation, info = _parts(returned, 2, "reset")
    return Told(_observation(observation), 0.0, False, False, _info(info), seconds)


def told(returned: object, seconds: float) -> Told:
    """What ``step`` returned: observation, reward, terminated, truncated and info."""
    observation, reward, terminated, truncated, info = _parts(returned, 5, "step")
    return Told(
        _observation(observation),
        _reward(reward),
        _as(_truth, terminated, "terminated"),
        _as(_truth, truncated, "truncated"),
        _info(info),
        seconds,
    )


def described(error: BaseException) -> str:
    """An exception as type and message, printable and not too long."""
    try:
        message = str(error)[:LONGEST_DETAIL]
    except Exception:  # its own code writes the message
        message = "(its message cannot be read)"
    return short(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def short(text: str) -> str:
    """The text, printable and not too long."""
    text = printable(text[: LONGEST_DETAIL + 1])
    return text if len(text) <= LONGEST_DETAIL else f"{text[: LONGEST_DETAIL - 3]}..."


def _parts(returned: object, count: int, method: str) -> tuple[Any, ...]:
    if not isinstance(returned, tuple):
        raise Malformed(f"{method} returned no tuple but {_type(returned)}")
    if len(returned) != count:
        raise Malformed(f"{method} returned {len(returned)} values, not {count}")
    return returned


def _observation(value: object) -> str:
    return _as(_text, value, "the observation")


def _reward(value: object) -> float:
    reward = _as(_number, value, "the reward")
    try:
        return float(reward)
    except OverflowError:
        raise Malformed("the reward is too large") from None


def _info(info: object) -> Info:
    """The known keys, each of its type, and whatever else is plain."""
    if not isinstance(info, Mapping):
        raise Malformed(f"info is no dict but {_type(info)}")
    lacking = [key for key in INFO_KEYS if key not in info]
    if lacking:
        raise Malformed(f"info lacks {', '.join(lacking)}")
    kept: Info = {}
    dropped: list[str] = []
    for key, value in info.items():
        if isinstance(key, str) and key in KNOWN:
            kept[key] = _as(KNOWN[key], value, f"info[{key!r}]")
            continue
        try:
            kept[_text(key)] = _plain(value, DEEPEST)
        except TypeError as problem:
            name = key if isinstance(key, str) else _type(key)
            dropped.append(short(f"{name}: {problem}"))
    if dropped:
        kept[DROPPED] = dropped
    return kept


def _as(read: Callable[[object], Value], value: object, name: str) -> Value:
    try:
        return read(value)
    except TypeError as problem:
        raise Malformed(f"{name} is {problem}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no text but {_type(value)}")
    if not encodable(value):
        raise TypeError("text that is not Unicode")
    return str.__str__(value)  # a subclass may override everything but this


def _truth(value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"no truth value but {_type(value)}")
    return bool(value)


def _number(value: object) -> int | float:
    """A finite number; one of numpy's becomes one of Python's."""
    if isinstance(value, Integral):
        return int(value)
    if not isinstance(value, Real):
        raise TypeError(f"no number but {_type(value)}")
    number = float(value)
    if not isfinite(number):
        raise TypeError(f"no finite number but {number}")
    return number


def _texts(value: object) -> list[str]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"no list but {_type(value)}")
    return [_text(item) for item in value]


def _optional(read: Callable[[object], Value]) -> Callable[[object], Value | None]:
    return lambda value: None if value is None else read(value)


def _plain(value: object, depth: int) -> Any:
    """The value as JSON could hold it, or TypeError."""
    if value is None:
        return None
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Real):
        return _number(value)
    if not isinstance(value, list | tuple | Mapping):
        raise TypeError(f"not plain data but {_type(value)}")
    if depth == 0:
        raise TypeError("nested too deeply")
    if isinstance(value, Mapping):
        return {_text(key): _plain(item, depth - 1) for key, item in value.items()}
    return [_plain(item, depth - 1) for item in value]


def _type(value: object) -> str:
    return short(type(value).__name__)


KNOWN: Mapping[str, Callable[[object], Any]] = {
    "admissible_actions": _optional(_texts),
    "won": _truth,
    "task_family": _text,
    "task": _text,
    "state": _text,
    "valid": _truth,
    "example_actions": _texts,
    "expert_action": _optional(_text),
}
"""How each known key of info is read."""
