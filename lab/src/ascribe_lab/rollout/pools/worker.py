"""``Worker``: the environments of some slots, and the program of a worker process.

Environments are other people's code. What they return may be of any type, and reading it may run
their code, so it is checked here, next to the environment, and only text, numbers, booleans, lists
and dicts leave, as JSON.
"""

import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import isfinite
from multiprocessing.connection import Connection
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from ascribe.steps.check import LARGEST_REWARD
from ascribe.steps.errors import AscribeError, InputError
from ascribe.steps.problems import printable
from ascribe.steps.table import encodable
from ascribe_lab.envs import INFO_KEYS, Environment, Info, make
from ascribe_lab.envs.contract import ContractChecker
from ascribe_lab.envs.protocol import missing_members
from ascribe_lab.rollout.pools.pool import (
    Command,
    EnvironmentQuery,
    EnvironmentSpec,
    Failure,
    FailureKind,
    Reset,
    StepResult,
)

READY = b"ready"
"""The first message of a worker; each further one is a result."""
STOP = b""
"""The last message to a worker. The first is the environment's specification, then come tasks."""
LONGEST_TEXT = 8 << 20
"""Characters of one observation, state or other text; an environment that returns more has failed.
"""
LARGEST_MESSAGE = 64 << 20
"""Bytes of one result; an environment that returns more has failed."""
DROPPED = "dropped"
"""The key of info that lists the keys whose values were not plain data."""
DEEPEST = 20
"""Lists and dicts nested deeper than this are not plain data: they may hold themselves."""
LONGEST_DETAIL = 500

RAISED = (Exception, SystemExit)
"""What an environment may raise; KeyboardInterrupt comes from the user."""
WRONG_CALL = (ImportError, AttributeError, TypeError, ValueError)
"""What making an environment raises if its name or its options are wrong."""

Result = StepResult | Failure
Value = TypeVar("Value")


class MalformedError(InputError):
    """An environment returned something that violates the protocol."""


class NotMadeError(AscribeError, RuntimeError):
    """An environment could not be made."""


class Worker:
    """Environments by slot. Each is made when its slot is first reset.

    A slot has an episode from a successful reset until its first failure; a step without an episode
    is ``LOST``. So a restarted worker needs no state of its predecessor.
    """

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        self._environments: dict[int, Environment] = {}
        self._playing: set[int] = set()
        self._checker: ContractChecker | None = None

    def execute(self, slot: int, command: Command) -> Result:
        """Carry out one command; whatever the environment raises is a failure."""
        try:
            if isinstance(command, EnvironmentQuery):
                return StepResult("", 0.0, False, False, self._reply(slot, command), 0.0)
            if isinstance(command, Reset):
                result = self._reset(slot, command)
            elif slot in self._playing:
                started = time.perf_counter()
                returned = self._environments[slot].step(command)
                result = read_step(returned, time.perf_counter() - started)
            else:
                return Failure(FailureKind.LOST, "there is no episode in this slot")
        except RAISED as error:
            self._playing.discard(slot)
            return self._failure(error)
        self._playing.add(slot)
        return result

    def messages(self, tasks: Iterable[tuple[int, Sequence[Command]]]) -> Iterator[bytes]:
        """Carry out the tasks of one call in turn, and yield each result as a message."""
        for slot, commands in tasks:
            for command in commands:
                result = self.execute(slot, command)
                message = encode(result)
                if len(message) > LARGEST_MESSAGE:
                    self._playing.discard(slot)
                    detail = f"a result of {len(message):,} bytes; the limit is {LARGEST_MESSAGE:,}"
                    result = Failure(FailureKind.MALFORMED, detail)
                    message = encode(result)
                yield message
                if isinstance(result, Failure):
                    break

    def close(self) -> None:
        """Close all environments."""
        for slot in list(self._environments):
            self._discard(slot)

    def _environment(self, slot: int) -> Environment:
        """The environment of a slot, made if need be."""
        if slot not in self._environments:
            try:
                environment = make(self.spec.name, **self.spec.options)
            except RAISED as error:
                raise NotMadeError(describe(error)) from error
            if lacks := missing_members(environment):
                raise NotMadeError(
                    f"{self.spec.name} gives {_type(environment)}, which is no environment: it "
                    f"lacks {', '.join(lacks)}",
                    hint="name a class or function that makes one",
                )
            self._environments[slot] = environment
        return self._environments[slot]

    def _reset(self, slot: int, reset: Reset) -> StepResult:
        environment = self._environment(slot)
        started = time.perf_counter()
        try:
            returned = environment.reset(seed=reset.seed, options=reset.options)
            return read_reset(returned, time.perf_counter() - started)
        except RAISED:
            # The environment may be unusable, for example because its server is gone, so the next
            # reset makes a new one.
            self._discard(slot)
            raise

    def _reply(self, slot: int, query: EnvironmentQuery) -> dict[str, Any]:
        if query.name == "contract":
            return self._check(**query.arguments)
        try:
            environment = self._environment(slot)
        except NotMadeError as error:
            if not isinstance(error.__cause__, WRONG_CALL):
                raise
            if isinstance(error.__cause__, InputError):
                return {"refused": error.__cause__.problem, "hint": error.__cause__.hint}
            return {"refused": str(error).partition(": ")[2] or str(error)}
        facts = {"tasks": environment.tasks, "horizon": getattr(environment, "horizon", None)}
        return {name: _checked(_optional(_count), fact, name) for name, fact in facts.items()}

    def _check(self, part: str, seeds: int, max_steps: int) -> dict[str, Any]:
        """The report of the contract after another part of the check."""
        if self._checker is None:
            factory = partial(make, self.spec.name, **self.spec.options)
            self._checker = ContractChecker(factory, seeds, max_steps)
        self._checker.run(part)
        return self._checker.report().as_dict()

    def _discard(self, slot: int) -> None:
        with suppress(*RAISED):
            self._environments.pop(slot).close()

    def _failure(self, error: BaseException) -> Failure:
        if isinstance(error, NotMadeError):
            kind, detail = FailureKind.NOT_STARTED, shorten(str(error))
        elif isinstance(error, MalformedError):
            kind, detail = FailureKind.MALFORMED, shorten(str(error))
        else:
            kind, detail = FailureKind.RAISED, describe(error)
        if isinstance(error.__cause__ or error, MemoryError) and self.spec.memory is not None:
            detail = f"{detail}: a worker may have {self.spec.memory:g} GiB (memory_limit)"
        return Failure(kind, detail)


# Messages.

_JSON = json.JSONEncoder(ensure_ascii=False, check_circular=False)


def encode(result: Result) -> bytes:
    """A result as a message."""
    return _JSON.encode(vars(result)).encode()


def decode(message: bytes) -> Result:
    """The result that a message holds."""
    fields = json.loads(message)
    if "kind" in fields:
        return Failure(FailureKind(fields["kind"]), fields["detail"])
    return StepResult(**fields)


# The program of a worker process.


def main(descriptor: int, lifeline: int) -> None:
    """Carry out what the pool sends until it says to stop.

    Args:
        descriptor: of the connection to the pool.
        lifeline: read end of a pipe whose write end the pool holds open while it runs, unused.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pool to handle
    for inherited in (descriptor, lifeline):
        os.set_inheritable(inherited, False)
    _die_with_pool(lifeline)
    connection = Connection(descriptor)
    process = os.getpid()
    connection.send_bytes(READY)
    worker = Worker(limit_memory(pickle.loads(connection.recv_bytes())))
    try:
        while (tasks := connection.recv_bytes()) != STOP:
            for message in worker.messages(pickle.loads(tasks)):
                # An environment may fork, and return in the fork too: only the worker sends.
                if os.getpid() != process:
                    os._exit(1)
                connection.send_bytes(message)
    finally:
        worker.close()


def limit_memory(spec: EnvironmentSpec) -> EnvironmentSpec:
    """Limit the data of this process, and of each that it starts; returns the spec with the limit.

    An environment that wants more gets a MemoryError, or ends its process if it cannot take that.
    """
    with suppress(ImportError, ValueError, OSError):  # a system without limits
        import resource

        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        allowed = resource.getrlimit(resource.RLIMIT_DATA)[1]
        size = machine if spec.memory is None else min(machine, int(spec.memory * 2**30))
        if allowed != resource.RLIM_INFINITY:
            size = min(size, allowed)
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
        return replace(spec, memory=round(size / 2**30, 3))
    return spec


def _die_with_pool(lifeline: int) -> None:
    """Kill this process, and all that it started, as soon as the lifeline breaks.

    On Linux the kernel does it, even while an environment holds the interpreter's lock. (A signal
    at the parent's death would come when the *thread* ends that started the process.) Elsewhere a
    thread does.
    """
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)

    # On Linux too: the pool may have died before the kernel was asked.
    threading.Thread(target=watch, daemon=True).start()


# What environments return, checked and reduced to plain data.


def read_reset(returned: object, seconds: float) -> StepResult:
    """What ``reset`` returned: observation and info."""
    observation, info = _tuple(returned, 2, "reset")
    text = _checked(_text, observation, "the observation")
    return StepResult(text, 0.0, False, False, _info(info), seconds)


def read_step(returned: object, seconds: float) -> StepResult:
    """What ``step`` returned: observation, reward, terminated, truncated and info."""
    observation, reward, terminated, truncated, info = _tuple(returned, 5, "step")
    return StepResult(
        _checked(_text, observation, "the observation"),
        _checked(_reward, reward, "the reward"),
        _checked(_bool, terminated, "terminated"),
        _checked(_bool, truncated, "truncated"),
        _info(info),
        seconds,
    )


def describe(error: BaseException) -> str:
    """An exception as type and message, printable and not too long."""
    try:
        message = str(error)[:LONGEST_DETAIL]
    except Exception:  # its own code writes the message
        message = "(its message cannot be read)"
    return shorten(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def shorten(text: str) -> str:
    """The text, printable and not too long."""
    text = printable(text[: LONGEST_DETAIL + 1])
    return text if len(text) <= LONGEST_DETAIL else f"{text[: LONGEST_DETAIL - 3]}..."


def _tuple(returned: object, count: int, method: str) -> tuple[Any, ...]:
    if not isinstance(returned, tuple):
        raise MalformedError(f"{method} returned no tuple but {_type(returned)}")
    if len(returned) != count:
        raise MalformedError(f"{method} returned {len(returned)} values, not {count}")
    return returned


def _info(info: object) -> Info:
    """The known keys, each of its type, and whatever else is plain data."""
    if not isinstance(info, Mapping):
        raise MalformedError(f"info is no dict but {_type(info)}")
    missing = [key for key in INFO_KEYS if key not in info]
    if missing:
        raise MalformedError(f"info lacks {', '.join(missing)}")
    plain: Info = {}
    dropped: list[str] = []
    for key, value in info.items():
        if isinstance(key, str) and key in INFO_TYPES:
            plain[key] = _checked(INFO_TYPES[key], value, f"info[{key!r}]")
            continue
        try:
            plain[_text(key)] = _plain_data(value, DEEPEST)
        except TypeError as problem:
            name = key if isinstance(key, str) else _type(key)
            dropped.append(shorten(f"{name}: {problem}"))
    if dropped:
        plain[DROPPED] = dropped
    return plain


def _checked(reader: Callable[[object], Value], value: object, name: str) -> Value:
    try:
        return reader(value)
    except TypeError as problem:
        raise MalformedError(f"{name} is {problem}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no text but {_type(value)}")
    if len(value) > LONGEST_TEXT:
        raise TypeError(f"text of {len(value):,} characters; the limit is {LONGEST_TEXT:,}")
    if not encodable(value):
        raise TypeError("text that is not Unicode")
    return str.__str__(value)  # a subclass may override everything but this


def _bool(value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"no boolean but {_type(value)}")
    return bool(value)


def _number(value: object) -> int | float:
    """A finite number; one of numpy's becomes one of Python's."""
    if isinstance(value, Integral):
        integer = int(value)
        if integer.bit_length() >= 1024:
            raise TypeError("too large")
        return integer
    if not isinstance(value, Real):
        raise TypeError(f"no number but {_type(value)}")
    number = float(value)
    if not isfinite(number):
        raise TypeError(f"no finite number but {number}")
    return number


def _reward(value: object) -> float:
    number = float(_number(value))
    if abs(number) > LARGEST_REWARD:
        raise TypeError(f"beyond {LARGEST_REWARD:g}: {number:g}")
    return number


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise TypeError(f"no positive whole number but {shorten(repr(value))}")
    return int(value)


def _list_of(reader: Callable[[object], Value]) -> Callable[[object], list[Value]]:
    def read(value: object) -> list[Value]:
        if not isinstance(value, list | tuple):
            raise TypeError(f"no list but {_type(value)}")
        return [reader(item) for item in value]

    return read


def _optional(reader: Callable[[object], Value]) -> Callable[[object], Value | None]:
    return lambda value: None if value is None else reader(value)


def _plain_data(value: object, depth: int) -> Any:
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
        return {_text(key): _plain_data(item, depth - 1) for key, item in value.items()}
    return [_plain_data(item, depth - 1) for item in value]


def _type(value: object) -> str:
    return shorten(type(value).__name__)


INFO_TYPES: Mapping[str, Callable[[object], Any]] = {
    "admissible_actions": _optional(_list_of(_text)),
    "won": _bool,
    "task_family": _text,
    "task": _text,
    "state": _text,
    "valid": _bool,
    "example_actions": _list_of(_text),
    "expert_action": _optional(_text),
    "agent": _optional(_text),
    "without": _optional(_list_of(_optional(_reward))),
}
"""How each known key of info is read."""
