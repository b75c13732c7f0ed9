"""``Setup`` and ``Model``: environment and policy, in plain values that a config can hold."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

from ascribe.agents import Agent, agent_for
from ascribe.envs import make
from ascribe.models import check_backend, make_policy
from ascribe.models.policy import SamplingPolicy
from ascribe.rollout.episode import FailurePolicy
from ascribe.rollout.pools import EnvironmentSpec, Pool, make_pool
from ascribe.rollout.run import Plan, Progress, Rollout, rollout

PoolName = Literal["serial", "processes", "ray"]
MOST_SLOTS = 256
"""Environments that are open at once, at most."""


@dataclass(frozen=True)
class Setup:
    """The environment, its prompts, and the pool that runs it."""

    environment: str
    """A key of ``ascribe.envs.ENVIRONMENTS``, or ``package.module:factory``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    style: str = "paper"
    """Of the prompts: ``paper`` or ``plain``."""
    pool: PoolName = "processes"
    workers: int = 2
    step_limit: float = 60.0
    """Seconds that one step may take."""
    reset_limit: float = 300.0
    """Seconds that a reset may take."""

    def __post_init__(self) -> None:
        if self.pool not in get_args(PoolName):
            pools = ", ".join(get_args(PoolName))
            raise ValueError(f"there is no pool {self.pool!r}; there are: {pools}")

    @cached_property
    def agent(self) -> Agent:
        """Makes prompts, and parses responses."""
        return agent_for(self.environment, self.style)

    @cached_property
    def facts(self) -> tuple[int | None, int | None]:
        """The number of tasks and the step limit, read from a temporary environment."""
        with closing(make(self.environment, **self.options)) as environment:
            return environment.tasks, getattr(environment, "horizon", None)

    def turns(self, max_turns: int | None) -> int:
        """The turns after which an episode is truncated: by default the environment's own limit.

        Raises:
            ValueError: if neither is known.
        """
        limit = self.facts[1] if max_turns is None else max_turns
        if limit is None:
            raise ValueError(f"{self.environment} has no step limit of its own: give max_turns")
        return limit

    def with_expert(self) -> "Setup":
        """The same, with the expert's next action in info."""
        return replace(self, options={**self.options, "expert": True})

    @contextmanager
    def open_pool(self, episodes: int) -> Iterator[Pool]:
        """A pool with slots for this many episodes."""
        spec = EnvironmentSpec(self.environment, dict(self.options))
        slots = min(episodes, MOST_SLOTS)
        workers = min(self.workers, slots)
        limits = (self.step_limit, self.reset_limit)
        with make_pool(self.pool, spec, workers, slots, *limits) as pool:
            yield pool


@dataclass(frozen=True)
class Model:
    """Which policy responds."""

    name: str
    """A model folder, ``smollm2``, the address of a server, ``random`` or ``expert``."""
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
) -> Rollout:
    """Open the policy and the pool, play the plan, and close both."""
    if model.name == "expert":
        setup = setup.with_expert()
    with (
        closing(model.open(setup.agent)) as policy,
        setup.open_pool(plan.groups * plan.size) as pool,
    ):
        return rollout(plan, pool, setup.agent, policy, failures=failures, progress=progress)
