"""``Config``: everything that a training run depends on, in one value that a file can hold.

The same file serves every engine, wherever the meaning is the same; what only one of them knows
stands under ``engine``. Each key has a meaning, and a default that says where it comes from.
"""

# ruff: noqa: RUF009 (key makes dataclass fields)

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ascribe.engines.corrections import Corrections, why_not
from ascribe.estimators import Recipe
from ascribe.estimators import recipe as make_recipe
from ascribe.rollout import FailurePolicy, Setup
from ascribe.rollout.record import States
from ascribe.rollout.setup import PoolName

Dtype = Literal["float32", "bfloat16", "float16"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]
Layout = Literal["step", "trajectory"]
Logger = Literal["tensorboard", "wandb", "trackio", "mlflow"]
Rate = Literal["constant", "linear", "cosine"]

Keys = tuple[str, ...]
"""A path of keys: ``("update", "seed")``."""

GIGPO = "GiGPO, Appendix E.1"
IBPO = "IBPO, Appendix C.1"
VERL = "verl"
TRL = "TRL"
OURS = "Ascribe"
"""Where a default comes from, for keys that no paper sets."""


def key(meaning: str, default: Any = MISSING, origin: str = OURS) -> Any:
    """A field with its meaning, and its default with where that comes from; or no default."""
    told = {"meaning": meaning, "origin": origin}
    if default is MISSING:
        return field(metadata=told)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=told)
    return field(default=default, metadata=told)


@dataclass(frozen=True)
class LoraSection:
    """Adapters of low rank are trained in place of all weights."""

    rank: int = key("rank of the adapters", 16)
    alpha: float = key("their product is multiplied by alpha / rank", 32.0)
    targets: tuple[str, ...] = key(
        "ends of the names of layers that get one; empty: every linear layer", ()
    )
    agents: tuple[str, ...] = key(
        "agents of a team that get adapters of their own and learn in turns, one in each "
        "iteration; empty: all learn the same; only with TRL",
        (),
    )

    def __post_init__(self) -> None:
        at_least(self, rank=1)
        above_zero(self, "alpha")


@dataclass(frozen=True)
class ModelSection:
    """Who learns."""

    path: str = key("a model folder with safetensors, or smollm2")
    dtype: Dtype = key("type of the weights; float32 where all of them are trained", "float32", TRL)
    attention: Attention | None = key(
        "how attention is computed; null: the model's own choice", None
    )
    lora: LoraSection | None = key(
        "adapters in place of all weights; null: all weights learn", None
    )


@dataclass(frozen=True)
class EnvironmentSection:
    """What is played, and where."""

    name: str = key("an environment (ascribe env list), or package.module:factory")
    options: Mapping[str, Any] = key("what the environment takes when it is made", {})
    style: Literal["paper", "plain"] = key(
        "of the prompts; plain is short, for small models", "paper"
    )
    pool: PoolName = key("where environments run", "processes")
    workers: int = key("processes or actors of the pool", 2)
    step_limit: float = key("seconds that one step may take", 60.0)
    reset_limit: float = key("seconds that the begin of an episode may take", 300.0)

    def __post_init__(self) -> None:
        at_least(self, workers=1)
        above_zero(self, "step_limit", "reset_limit")

    def setup(self) -> Setup:
        """The same, for rollouts."""
        limits = (self.step_limit, self.reset_limit)
        return Setup(self.name, self.options, self.style, self.pool, self.workers, *limits)


@dataclass(frozen=True)
class RecipeSection:
    """How steps are credited."""

    name: str = key("a recipe (ascribe recipes)", "gigpo")
    preset: str | None = key("the recipe as public code computes it; null: as the paper", None)
    parameters: Mapping[str, Any] = key("of the recipe, where they differ", {})

    def __post_init__(self) -> None:
        self.recipe()

    def recipe(self, **changes: Any) -> Recipe:
        """The recipe, with parameters changed."""
        return make_recipe(self.name, preset=self.preset, **{**self.parameters, **changes})


@dataclass(frozen=True)
class FailureSection:
    """What to do about episodes that fail."""

    retries: int = key("how often one episode may fail before it is given up", 2)
    smallest_group: int | None = key(
        "trajectories that a group needs to count; null: all of them", None
    )
    stop: bool = key("whether to stop the run when an episode is given up", False)

    def __post_init__(self) -> None:
        at_least(self, retries=0, smallest_group=1)

    def policy(self) -> FailurePolicy:
        """The same, for rollouts."""
        return FailurePolicy(self.retries, self.smallest_group, self.stop)


@dataclass(frozen=True)
class RolloutSection:
    """What an iteration plays."""

    groups: int = key("tasks", 16, GIGPO)
    size: int = key("trajectories of each task", 8, GIGPO)
    max_turns: int | None = key(
        "decisions after which an episode is cut; null: the environment's limit", None
    )
    max_tokens: int = key("tokens that an answer may have", 512, GIGPO)
    temperature: float = key("of sampling", 1.0, GIGPO)
    top_p: float = key("share of probability that is sampled from", 1.0, VERL)
    dtype: Dtype | None = key(
        "type of the weights that sample; null: as those that learn. With TRL another type makes a "
        "copy",
        None,
    )
    stop: tuple[str, ...] = key("an answer ends after any of these texts", ())
    context: int | None = key(
        "tokens that prompt and answer may have together; null: what the model can, on verl 1024",
        None,
    )
    tasks: tuple[int, ...] | None = key("numbers of the tasks to play; null: all", None)
    states: States = key(
        "what the state of a step is: the environment's key, or the observation", "environment"
    )
    corrections: int = key(
        "corrections of each wrong answer, for the recipe ibpo, which needs at least 1", 0
    )
    references: int = key(
        "other answers that stand beside a wrong one in the prompt of its correction; right ones "
        "if there are any",
        1,
        IBPO,
    )
    failures: FailureSection = field(default_factory=FailureSection)

    def __post_init__(self) -> None:
        at_least(self, groups=1, size=2, max_turns=1, max_tokens=1, context=2)
        at_least(self, corrections=0, references=1)
        above_zero(self, "temperature")
        if not 0 < self.top_p <= 1:
            raise Refused("top_p", f"must lie in (0, 1], not {self.top_p}")
        if self.tasks is not None and (not self.tasks or min(self.tasks) < 0):
            raise Refused("tasks", "must be numbers from 0, at least one; null for all tasks")

    def correcting(self) -> Corrections | None:
        """What is corrected; None if nothing is."""
        return Corrections(self.corrections, self.references) if self.corrections else None


@dataclass(frozen=True)
class UpdateSection:
    """What is learned from it."""

    iterations: int = key("rounds of playing and learning", 150, "verl-agent's examples")
    learning_rate: float = key("of AdamW", 1e-6, GIGPO)
    schedule: Rate = key("of the learning rate; linear only with TRL", "constant", VERL)
    clip_low: float = key("a ratio of probabilities below 1 - this is clipped", 0.2, "PPO; verl")
    clip_high: float = key("a ratio above 1 + this is clipped", 0.2, "PPO; verl")
    kl: float = key(
        "coefficient of the KL divergence from the model at the start, in the loss", 0.01, GIGPO
    )
    minibatches: int = key(
        "updates of an epoch, on equal shares of the rows; GiGPO: on 256 rows each", 1
    )
    epochs: int = key("how often an iteration's rows are learned from", 1, VERL)
    rows_per_pass: int = key("rows that go through the model at once; it bounds memory", 8, TRL)
    layout: Layout = key("a row for each decision, or for each trajectory", "step", "verl-agent")
    max_grad_norm: float = key("a longer gradient is cut to this length", 1.0, VERL)
    seed: int = key("of tasks, samples and order", 0)

    def __post_init__(self) -> None:
        at_least(self, iterations=1, kl=0.0, minibatches=1, epochs=1, rows_per_pass=1, seed=0)
        above_zero(self, "learning_rate", "clip_low", "clip_high", "max_grad_norm")


@dataclass(frozen=True)
class FingerprintSection:
    """Where the policy's hidden states are taken, for recipes that cluster states by them."""

    calibration: str | None = key("file of ascribe calibrate, for layer and radius", None)
    layer: int | None = key(
        "decoder block, an index as in Python; null: the calibration's (BiPACE: -12 for "
        "Qwen2.5-1.5B, -8 for 7B)",
        None,
    )
    radius: float | None = key(
        "largest cosine distance of equal states; null: the calibration's, else the recipe's", None
    )


@dataclass(frozen=True)
class OutputSection:
    """What is written, and where."""

    folder: str = key("gets metrics.jsonl, config.yaml, checkpoints, and at the end the model")
    save_every: int = key("iterations from one checkpoint to the next; 0: none", 10)
    keep: int | None = key("checkpoints that are kept; null: all", 2)
    rollouts: bool = key(
        "whether every iteration's rollouts are written, with their advantages", False
    )
    log_to: tuple[Logger, ...] = key("where else numbers go", ())

    def __post_init__(self) -> None:
        at_least(self, save_every=0, keep=1)


@dataclass(frozen=True)
class EngineSection:
    """What only one engine knows, passed on as it is."""

    trl: Mapping[str, Any] = key("fields of GRPOConfig that no key above stands for", {})
    verl: Mapping[str, Any] = key("dotted overrides of verl's configuration", {})


@dataclass(frozen=True, kw_only=True)
class Config:
    """A training run."""

    model: ModelSection
    environment: EnvironmentSection
    recipe: RecipeSection = field(default_factory=RecipeSection)
    rollout: RolloutSection = field(default_factory=RolloutSection)
    update: UpdateSection = field(default_factory=UpdateSection)
    fingerprints: FingerprintSection = field(default_factory=FingerprintSection)
    output: OutputSection
    engine: EngineSection = field(default_factory=EngineSection)

    def __post_init__(self) -> None:
        given = self.rollout
        if why := why_not(self.recipe.recipe(), given.corrections, given.max_turns):
            raise Refused("rollout.corrections", why)

    @property
    def episodes(self) -> int:
        """Episodes that an iteration plays."""
        return self.rollout.groups * self.rollout.size

    @property
    def updates_per_iteration(self) -> int:
        """Updates that follow on one round of playing."""
        return self.update.minibatches * self.update.epochs


class Refused(ValueError):  # noqa: N818 (named for what happened)
    """A key has a value that cannot be."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why = name, why


def refuse_said_elsewhere(engine: str, given: Iterable[str], said: Mapping[str, str]) -> None:
    """Refuse names under ``engine`` that follow from other keys; a ``+`` before one is Hydra's."""
    for name in given:
        if (plain := name.lstrip("+")) in said:
            raise Refused(f"engine.{engine}.{name}", f"is said by {said[plain]}")


def at_least(section: Any, **lowest: float) -> None:
    """Refuse numbers that are too small; None is none."""
    for name, low in lowest.items():
        value = getattr(section, name)
        if value is not None and not value >= low:
            raise Refused(name, f"must be at least {low:g}, not {value}")


def above_zero(section: Any, *names: str) -> None:
    """Refuse numbers that are not positive."""
    for name in names:
        if not getattr(section, name) > 0:
            raise Refused(name, f"must be above 0, not {getattr(section, name)}")


@dataclass(frozen=True)
class Known:
    """A key that a config may have."""

    hint: Any
    """Its type."""
    default: Any
    """``MISSING`` if it must be given."""
    origin: str
    """Where the default comes from."""
    meaning: str


def known_keys(kind: Any = Config, path: Keys = ()) -> dict[Keys, Known]:
    """Every key that there is, by its path, in order."""
    found: dict[Keys, Known] = {}
    hints = get_type_hints(kind)
    for each in fields(kind):
        here, hint = (*path, each.name), hints[each.name]
        if told := each.metadata:
            free = each.default_factory is not MISSING
            default = {} if free else each.default
            found[here] = Known(hint, default, told["origin"], told["meaning"])
        inner = without_none(hint)
        if is_dataclass(inner):
            found |= known_keys(inner, here)
    return found


def is_optional(hint: Any) -> bool:
    """Whether a type takes None besides another."""
    return get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint)


def without_none(hint: Any) -> Any:
    """What a type takes besides None."""
    if not is_optional(hint):
        return hint
    return next(each for each in get_args(hint) if each is not type(None))


def leaves(config: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Every key of a config with its value, in order; the entries of free mappings one by one."""
    for each in fields(config):
        value, here = getattr(config, each.name), (*path, each.name)
        if is_dataclass(value):
            yield from leaves(value, here)
        elif isinstance(value, Mapping) and value:
            yield from (((*here, name), value[name]) for name in sorted(value))
        else:
            yield here, value
