"""``Setup`` and ``Model``: environment and policy, in plain values that a config can hold."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

from ascribe.steps.errors import InputError
from ascribe.steps.hints import unknown
from ascribe_lab.agents import Agent, agent_for
from ascribe_lab.envs.contract import PARTS
from ascribe_lab.envs.faults import ContractFinding, ContractReport, Fault
from ascribe_lab.models import check_backend, make_policy
from ascribe_lab.models.policy import SamplingPolicy
from ascribe_lab.rollout.episode import FailurePolicy
from ascribe_lab.rollout.pools import (
    EnvironmentQuery,
    EnvironmentSpec,
    Failure,
    FailureKind,
    Pool,
    make_pool,
)
from ascribe_lab.rollout.run import Keep, Place, Plan, Progress, Rollout, Trajectory, rollout

PoolName = Literal["serial", "processes"]
MOST_SLOTS = 256
"""Environments that are open at once, at most."""
FACT_RETRIES = 2
"""How often an environment that crashes is asked for its facts again."""


@dataclass(frozen=True)
class Setup:
    """The environment, its prompts, and the pool that runs it.

    Example:
        >>> from ascribe_lab.rollout import Setup
        >>> Setup("ezpoints", style="plain", pool="serial").workers
        2
    """

    environment: str
    """A key of ``ascribe_lab.envs.ENVIRONMENTS``, or ``package.module:factory``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    style: str = "paper"
    """Of the prompts: ``paper``, ``plain`` or ``choices``."""
    pool: PoolName = "processes"
    workers: int = 2
    step_limit: float = 60.0
    """Seconds that one step may take."""
    reset_limit: float = 300.0
    """Seconds that a reset may take, and making an environment to ask for its facts."""
    start_limit: float = 120.0
    """Seconds that a worker may take to start, and an environment to be made."""
    memory_limit: float | None = None
    """GiB of data that a worker may have; None: the memory of its machine. Not in a serial pool."""

    def __post_init__(self) -> None:
        if self.pool not in get_args(PoolName):
            raise unknown("pool", self.pool, get_args(PoolName))

    @cached_property
    def agent(self) -> Agent:
        """Makes prompts, and parses responses."""
        return agent_for(self.environment, self.style)

    @cached_property
    def facts(self) -> tuple[int | None, int | None]:
        """The number of tasks and the step limit, read from a temporary environment.

        Raises:
            ValueError: if the environment cannot be made.
        """
        query = EnvironmentQuery("facts", self.reset_limit)
        with self._probe_pool() as pool:
            facts = _ask(pool, query)
            for _ in range(FACT_RETRIES):
                if not isinstance(facts, Failure) or facts.kind is not FailureKind.CRASHED:
                    break  # somebody else may have killed the worker
                facts = _ask(pool, query)
        if isinstance(facts, Failure):
            raise InputError(f"{self.environment} cannot be made: {facts.kind}: {facts.detail}")
        return facts["tasks"], facts["horizon"]

    def check_contract(self, seeds: int, max_steps: int, limit: float) -> ContractReport:
        """Check the environment against the contract, in a worker.

        Args:
            seeds: how many seeds are played.
            max_steps: a random episode is abandoned after so many steps.
            limit: seconds that each part of the check may take.

        Raises:
            ValueError: if there is no such environment, or it does not take the options.
        """
        report = ContractReport((), 0, 0, 0.0)
        with self._probe_pool() as pool:
            _ask(pool, EnvironmentQuery("facts", limit))
            for part in PARTS:
                arguments = {"part": part, "seeds": seeds, "max_steps": max_steps}
                reply = _ask(pool, EnvironmentQuery("contract", limit, arguments))
                if isinstance(reply, Failure):
                    hung = reply.kind is FailureKind.HUNG
                    fault = Fault.HANGS if hung else Fault.ENDS_ITS_PROCESS
                    finding = ContractFinding(fault, f"{part.replace('_', ' ')}: {reply.detail}")
                    return replace(report, findings=(finding, *report.findings))
                report = ContractReport.from_dict(reply)
        return report

    def _probe_pool(self) -> Pool:
        """A pool with one environment; in a worker process unless the user wants it here."""
        spec = EnvironmentSpec(self.environment, dict(self.options), self.memory_limit)
        kind: PoolName = "serial" if self.pool == "serial" or os.name != "posix" else "processes"
        return make_pool(kind, spec, 1, 1, *self._limits)

    def turns(self, max_turns: int | None) -> int:
        """The turns after which an episode is truncated: by default the environment's own limit.

        Raises:
            ValueError: if neither is known.
        """
        limit = self.facts[1] if max_turns is None else max_turns
        if limit is None:
            raise InputError(f"{self.environment} has no step limit of its own: give max_turns")
        return limit

    def with_expert(self) -> "Setup":
        """The same, with the expert's next action in info."""
        return replace(self, options={**self.options, "expert": True})

    @contextmanager
    def open_pool(self, episodes: int) -> Iterator[Pool]:
        """A pool with slots for this many episodes."""
        spec = EnvironmentSpec(self.environment, dict(self.options), self.memory_limit)
        slots = min(episodes, MOST_SLOTS)
        workers = min(self.workers, slots)
        with make_pool(self.pool, spec, workers, slots, *self._limits) as pool:
            yield pool

    @property
    def _limits(self) -> tuple[float, float, float]:
        return self.step_limit, self.reset_limit, self.start_limit


def _ask(pool: Pool, query: EnvironmentQuery) -> dict[str, Any] | Failure:
    """The reply to a query; ValueError if the environment's name or options are wrong."""
    reply = pool.ask(query)
    if not isinstance(reply, Failure) and "refused" in reply:
        raise InputError(reply["refused"], hint=reply.get("hint", ""))
    return reply


@dataclass(frozen=True)
class Model:
    """Which policy responds.

    Example:
        >>> from ascribe_lab.rollout import Model
        >>> Model("expert").needs_expert
        True
    """

    name: str
    """A model folder, ``smollm2``, the address of a server, ``random``, ``expert`` or
    ``faulty``."""
    backend: str = "transformers"
    """What runs a model folder: ``transformers`` or ``vllm``."""
    dtype: str | None = None
    """Type to compute in; None: the backend's choice."""
    context: int | None = None
    """Tokens that prompt and response may have together; None: the model's own limit."""
    tokenizer: str | None = None
    """The folder of the tokenizer, for a server."""

    def __post_init__(self) -> None:
        check_backend(self.backend)

    @property
    def needs_expert(self) -> bool:
        """Whether the policy reads the expert's action."""
        return self.name in ("expert", "faulty")

    def open(self, agent: Agent) -> SamplingPolicy:
        """The policy; close it after use. Scripted ones write what the agent's parser reads."""
        return make_policy(**asdict(self), write=agent.render)


def play(
    setup: Setup,
    model: Model,
    plan: Plan,
    *,
    failures: FailurePolicy | None = None,
    progress: Progress = lambda _: None,
    done: Mapping[Place, Trajectory] | None = None,
    keep: Keep = lambda _: {},
) -> Rollout:
    """Open the policy and the pool, play the plan as ``rollout`` does, and close both.

    Example:
        >>> from ascribe_lab.rollout import Model, Plan, Setup, play
        >>> setup = Setup("ezpoints", pool="serial")
        >>> played = play(setup, Model("random"), Plan(groups=1, size=2, max_turns=4))
        >>> len(played.trajectories)
        2
    """
    if model.needs_expert:
        setup = setup.with_expert()
    with (
        closing(model.open(setup.agent)) as policy,
        setup.open_pool(plan.groups * plan.size) as pool,
    ):
        return rollout(
            plan,
            pool,
            setup.agent,
            policy,
            failures=failures,
            progress=progress,
            done=done,
            keep=keep,
        )
