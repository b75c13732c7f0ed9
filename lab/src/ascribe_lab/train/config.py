"""``Config``: everything that a training run depends on, in one value that a file can hold.

The same file serves every engine wherever the meaning is the same; what only one engine knows is
under ``engine``. Each key has a meaning, and a default with its origin. pydantic checks the types
and the limits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictFloat,
    StrictInt,
)
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from ascribe.engines import training_recipe
from ascribe.engines.inputs import uncompared
from ascribe.estimators import DEFAULT, Recipe
from ascribe.steps.errors import InputError
from ascribe.steps.plugins import is_path
from ascribe_lab.rollout import FailurePolicy, Setup
from ascribe_lab.rollout.record import States
from ascribe_lab.rollout.setup import PoolName
from ascribe_lab.train.corrections import Corrections, correction_problem

Dtype = Literal["float32", "bfloat16", "float16"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]
Layout = Literal["step", "trajectory"]
Logger = Literal["tensorboard", "wandb", "trackio", "mlflow"]
Rate = Literal["constant", "linear", "cosine"]
Loss = Literal["row", "token", "sum"]
if TYPE_CHECKING:
    Options = Mapping[str, Any]
else:
    Options = Mapping[str, JsonValue]
    """Any keys, with values that JSON has."""

Keys = tuple[str, ...]
"""A path of keys: ``("update", "seed")``."""

GIGPO = "GiGPO, Appendix E.1"
IBPO = "IBPO, Appendix C.1"
VERL = "verl"
TRL = "TRL"
OURS = "Ascribe"
"""Origin of the defaults that no paper sets."""

MOST_TASKS = 100_000
"""Held-out tasks that a number may stand for."""

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


class ConfigError(InputError):
    """What is wrong with a configuration, one line for each key."""

    def __init__(self, *problems: str, hint: str = "") -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


def key(meaning: str, default: Any = ..., origin: str = OURS, **limits: Any) -> Any:
    """A field with its meaning, its default if it has one, and the default's origin."""
    return Field(default, description=meaning, json_schema_extra={"origin": origin}, **limits)


@dataclass(frozen=True, config=STRICT)
class LoraSection:
    """Low-rank adapters, trained in place of all weights."""

    rank: StrictInt = key("rank of the adapters", 16, ge=1)
    alpha: StrictFloat = key(
        "scale of the adapters: their product is multiplied by alpha / rank", 32.0, gt=0
    )
    targets: tuple[str, ...] = key(
        "layers that get an adapter, by the ends of their names; empty: every linear layer", ()
    )
    agents: tuple[str, ...] = key(
        "agents of a team with an adapter each, which learn in turns, one in each iteration; "
        "empty: all agents share the trained weights; TRL only",
        (),
    )


@dataclass(frozen=True, config=STRICT)
class ModelSection:
    """The model to train."""

    path: str = key("folder of the model (safetensors), its id on a hub, or smollm2")
    dtype: Dtype = key(
        "data type of the weights; keep float32 if all of them are trained", "float32", TRL
    )
    attention: Attention | None = key(
        "implementation of attention; null: the model's default", None
    )
    lora: LoraSection | None = key(
        "low-rank adapters to train instead of all weights; null: train all weights", None
    )


@dataclass(frozen=True, config=STRICT)
class EnvironmentSection:
    """The environment, and where it runs."""

    name: str = key("name of an environment (see ascribe env list), or package.module:factory")
    options: Options = key("options of the environment (see ascribe env options NAME)", {})
    style: Literal["paper", "plain"] = key(
        "style of the prompts; plain is short, for small models", "paper"
    )
    pool: PoolName = key(
        "how environments run: in worker processes, or serial (in this process, without time "
        "limits)",
        "processes",
    )
    workers: StrictInt = key("number of worker processes", 2, ge=1)
    step_limit: StrictFloat = key("time limit for one step, in seconds", 60.0, gt=0)
    reset_limit: StrictFloat = key("time limit for a reset, in seconds", 300.0, gt=0)
    start_limit: StrictFloat = key(
        "time limit for starting a worker, and for making an environment, in seconds", 120.0, gt=0
    )
    memory_limit: StrictFloat | None = key(
        "memory limit for the data of a worker, in GiB; null: the memory of its machine", None, gt=0
    )

    def setup(self) -> Setup:
        """The same, for rollouts."""
        limits = (self.step_limit, self.reset_limit, self.start_limit, self.memory_limit)
        return Setup(self.name, self.options, self.style, self.pool, self.workers, *limits)


@dataclass(frozen=True, config=STRICT)
class RecipeSection:
    """The recipe that assigns credit to steps."""

    name: str = key(
        "name of a recipe (see ascribe recipes), or module:Name for one of your own; sbc has "
        "scale: equal here, unless it is set",
        DEFAULT,
    )
    preset: str | None = key(
        "named parameters of the recipe, as in public code; null: as in the paper", None
    )
    parameters: Options = key("parameters of the recipe to change", {})

    def __post_init__(self) -> None:
        if not is_path(self.name):  # a user's own is not imported until it is used
            self.recipe()

    def recipe(self, **changes: Any) -> Recipe:
        """The recipe, with parameters changed."""
        if "preset" in self.parameters:
            raise InputError("preset is no parameter: set recipe.preset")
        return training_recipe(self.name, preset=self.preset, **{**self.parameters, **changes})


@dataclass(frozen=True, config=STRICT)
class FailureSection:
    """What to do about episodes that fail."""

    retries: StrictInt = key("number of retries of a failed episode", 2, ge=0)
    smallest_group: StrictInt | None = key(
        "fewest trajectories of a group; a smaller group is dropped; null: none may be missing",
        None,
        ge=1,
    )
    stop: StrictBool = key("whether to stop the run when an episode fails after all retries", False)

    def policy(self) -> FailurePolicy:
        """The same, for rollouts."""
        return FailurePolicy(self.retries, self.smallest_group, self.stop)


@dataclass(frozen=True, config=STRICT)
class RolloutSection:
    """The episodes of an iteration."""

    groups: StrictInt = key("number of tasks in an iteration", 16, GIGPO, ge=1)
    size: StrictInt = key(
        "number of trajectories of each task: 2 or more, or 1 with a critic (gae) or a memory",
        8,
        GIGPO,
        ge=1,
    )
    max_turns: StrictInt | None = key(
        "most steps of an episode, which is then truncated; null: the environment's limit",
        None,
        ge=1,
    )
    episode_limit: StrictFloat | None = key(
        "time limit for an episode, in seconds, after which it fails; null: none", None, gt=0
    )
    max_tokens: StrictInt = key("most tokens of a response", 512, GIGPO, ge=1)
    temperature: StrictFloat = key("sampling temperature", 1.0, GIGPO, gt=0)
    top_p: StrictFloat = key(
        "share of probability to sample from (nucleus sampling)", 1.0, VERL, gt=0, le=1
    )
    seeded: StrictBool = key(
        "whether every request has a seed of its own, so that the same weights give the same "
        "responses; vLLM then samples requests one by one; always so with TRL",
        False,
    )
    dtype: Dtype | None = key(
        "data type of the weights for sampling; null: that of training; with TRL another type "
        "needs a copy of the weights",
        None,
    )
    versions: StrictInt | None = key(
        "most versions of the policy in one group, with verl's asynchronous trainers; null: "
        "any number",
        None,
        ge=1,
    )
    stale: Literal["drop", "refuse", "credit"] = key(
        "what to do with a group of more versions than that: drop it, refuse (stop the run), "
        "or credit it all the same",
        "drop",
    )
    stop: tuple[str, ...] = key("texts that end a response", ())
    context: StrictInt | None = key(
        "most tokens of a prompt and its response together; null: what the model allows, or "
        "1024 on verl",
        None,
        ge=2,
    )
    tasks: tuple[Annotated[StrictInt, Field(ge=0)], ...] | None = key(
        "numbers of the tasks to play; null: all", None, min_length=1
    )
    states: States = key(
        "state of a step: observation, or environment (the environment's own key, which tells "
        "apart states that look the same)",
        "observation",
        "GiGPO; BiPACE, Appendix B.1",
    )
    corrections: StrictInt = key(
        "number of corrections of each wrong response; the recipe ibpo needs at least 1", 0, ge=0
    )
    references: StrictInt = key(
        "number of other responses in the prompt of a correction, right ones if there are any "
        "(k - 1 in IBPO's ablation)",
        1,
        IBPO,
        ge=0,
    )
    failures: FailureSection = Field(default_factory=FailureSection)

    def correcting(self) -> Corrections | None:
        """What is corrected; None if nothing is."""
        return Corrections(self.corrections, self.references) if self.corrections else None


def _first(tasks: Any) -> Any:
    """A number stands for the first so many tasks."""
    return tuple(range(tasks)) if type(tasks) is int and 0 <= tasks <= MOST_TASKS else tasks


@dataclass(frozen=True, config=STRICT)
class EvaluationSection:
    """Held-out tasks."""

    tasks: Annotated[tuple[Annotated[StrictInt, Field(ge=0)], ...], BeforeValidator(_first)] = key(
        "held-out tasks, played at the start and before every checkpoint: their numbers, or "
        "how many of the first to take (128); empty: none",
        (),
    )
    size: StrictInt = key("number of episodes of each held-out task", 1, ge=1)
    options: Options = key(
        "options of the environment to change for held-out tasks, such as {split: test}", {}
    )
    temperature: StrictFloat | None = key(
        "sampling temperature for held-out tasks; null: as in training (GiGPO: 0.4, in search 0)",
        None,
        ge=0,
    )
    threshold: StrictFloat = key(
        "success rate to reach; the first iteration that reached it is printed at the end",
        0.5,
        gt=0,
        le=1,
    )


@dataclass(frozen=True, config=STRICT)
class UpdateSection:
    """The updates of the model."""

    iterations: StrictInt = key(
        "number of iterations, each of rollouts and updates", 150, "verl-agent's examples", ge=1
    )
    learning_rate: StrictFloat = key("learning rate of AdamW", 1e-6, GIGPO, gt=0)
    schedule: Rate = key("schedule of the learning rate; linear with TRL only", "constant", VERL)
    warmup: StrictFloat = key(
        "share of the updates over which the learning rate rises from 0", 0.0, VERL, ge=0, lt=1
    )
    floor: StrictFloat = key(
        "learning rate at the end of a cosine schedule, as a share of update.learning_rate",
        0.0,
        ge=0,
        le=1,
    )
    clip_low: StrictFloat = key(
        "distance below 1 at which the ratio of probabilities is clipped", 0.2, "PPO; verl", gt=0
    )
    clip_high: StrictFloat = key(
        "distance above 1 at which the ratio of probabilities is clipped", 0.2, "PPO; verl", gt=0
    )
    kl: StrictFloat = key(
        "coefficient, in the loss, of the KL divergence from the initial model",
        0.01,
        GIGPO,
        ge=0,
    )
    loss: Loss = key(
        "how the loss averages: row (over rows, each the mean of its tokens; GiGPO, Eq. 9; "
        "PivotRL, Eq. 7: over actions), token (over all tokens; verl-agent), or sum (over "
        "rows, each the sum of its tokens divided by rollout.max_tokens; Dr. GRPO)",
        "row",
        "GiGPO, Eq. 9",
    )
    ratio: Literal["token", "sequence"] = key(
        "what is clipped: the ratio of each token, or of the whole response (sequence), to "
        "the power 1 / length (GSPO)",
        "token",
        "PPO; verl",
    )
    minibatches: StrictInt = key(
        "number of updates in an epoch, on equal shares of the rows; leave it out if "
        "minibatch_rows is set",
        1,
        ge=1,
    )
    minibatch_rows: StrictInt | None = key(
        "number of rows in a minibatch, so that longer episodes make more updates (GiGPO: 256 "
        "for ALFWorld, 64 for WebShop); null: use minibatches; verl only",
        None,
        ge=1,
    )
    epochs: StrictInt = key("number of passes over the rows of an iteration", 1, VERL, ge=1)
    rows_per_pass: StrictInt = key(
        "number of rows that go through the model at once; fewer need less memory", 8, TRL, ge=1
    )
    layout: Layout = key(
        "rows to train on: one for each step, or one for each trajectory", "step", "verl-agent"
    )
    max_grad_norm: StrictFloat = key(
        "largest norm of the gradient; a larger one is scaled down to it", 1.0, VERL, gt=0
    )
    seed: StrictInt = key("random seed of tasks, samples and order", 0, ge=0)


@dataclass(frozen=True, config=STRICT)
class FingerprintSection:
    """Where the policy's hidden states are taken, for recipes that cluster states by them."""

    calibration: str | None = key(
        "calibration.yaml that ascribe calibrate wrote, for layer and radius", None
    )
    layer: StrictInt | None = key(
        "decoder block whose hidden state is the fingerprint; -1 is the last; null: the "
        "calibration's (BiPACE: -12 for Qwen2.5-1.5B, -8 for 7B)",
        None,
    )
    radius: StrictFloat | None = key(
        "largest cosine distance of states that count as equal; null: the calibration's, else "
        "the recipe's",
        None,
    )


@dataclass(frozen=True, config=STRICT)
class OutputSection:
    """What is written, and where."""

    folder: str = key(
        "folder for metrics.jsonl, config.yaml, the checkpoints and the trained model"
    )
    save_every: StrictInt = key(
        "number of iterations between two checkpoints; 0: no checkpoints", 10, ge=0
    )
    keep: StrictInt | None = key("number of checkpoints to keep; null: all", 2, ge=1)
    rollouts: StrictBool = key(
        "whether to write the rollouts of every iteration, with their advantages", False
    )
    log_to: tuple[Logger, ...] = key("further loggers to send metrics to", ())


@dataclass(frozen=True, config=STRICT)
class EngineSection:
    """What only one engine knows, passed on unchanged, and how long to wait for it."""

    trl: Options = key("fields of GRPOConfig that no other key sets", {})
    verl: Options = key("keys of verl's configuration, in dotted form", {})
    iteration_limit: StrictFloat | None = key(
        "time limit for an iteration on verl, in seconds, after which the run ends; null: none",
        10800.0,
        gt=0,
    )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Config:
    """A training run."""

    model: ModelSection
    environment: EnvironmentSection
    recipe: RecipeSection = Field(default_factory=RecipeSection)
    rollout: RolloutSection = Field(default_factory=RolloutSection)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    update: UpdateSection = Field(default_factory=UpdateSection)
    fingerprints: FingerprintSection = Field(default_factory=FingerprintSection)
    output: OutputSection
    engine: EngineSection = Field(default_factory=EngineSection)

    def __post_init__(self) -> None:
        rollout = self.rollout
        if self.update.floor and self.update.schedule != "cosine":
            raise ConfigError("update.floor: only a cosine schedule has one: leave it 0")
        if self.update.ratio == "sequence" and self.update.loss != "row":
            raise ConfigError("update.loss: must be row, since update.ratio is sequence")
        if self.update.minibatch_rows is not None and self.update.minibatches != 1:
            raise ConfigError("update.minibatches: leave it out, since minibatch_rows is given")
        if is_path(self.recipe.name):
            return  # checked when the recipe is imported
        recipe = self.recipe.recipe()
        if problem := uncompared(recipe, rollout.size):
            raise ConfigError(f"rollout.size: {problem}")
        if getattr(recipe, "memory", 0) and rollout.tasks is None:
            raise ConfigError(
                "rollout.tasks: must be given, since the recipe has a memory of tasks, and by "
                "default every group has a task of its own"
            )
        if why := correction_problem(recipe, rollout.corrections, rollout.max_turns):
            raise ConfigError(f"rollout.corrections: {why}")
        if self.evaluation.tasks and not self.output.save_every:
            raise ConfigError("output.save_every: must be above 0, since checkpoints are evaluated")

    @property
    def held_out(self) -> EnvironmentSection:
        """The environment of the held-out tasks."""
        options = {**self.environment.options, **self.evaluation.options}
        return replace(self.environment, options=options)

    @property
    def eval_temperature(self) -> float:
        """The temperature at which held-out tasks are played."""
        own = self.evaluation.temperature
        return self.rollout.temperature if own is None else own

    @property
    def episodes(self) -> int:
        """Episodes of an iteration."""
        return self.rollout.groups * self.rollout.size

    @property
    def updates_per_iteration(self) -> int:
        """Updates after the rollouts of an iteration."""
        return self.update.minibatches * self.update.epochs


def refuse_duplicates(engine: str, names: Iterable[str], set_by: Mapping[str, str]) -> None:
    """Refuse names under ``engine`` that other keys set; a ``+`` before one is Hydra's."""
    for name in names:
        if (plain := name.lstrip("+")) in set_by:
            raise ConfigError(f"engine.{engine}.{name}: is set by {set_by[plain]}")


@cache
def known_keys(kind: Any = Config, path: Keys = ()) -> dict[Keys, FieldInfo]:
    """Every key by its path, in order; sections too."""
    keys: dict[Keys, FieldInfo] = {}
    for name, info in kind.__pydantic_fields__.items():
        keys[*path, name] = info
        if (section := section_of(info)) is not None:
            keys |= known_keys(section, (*path, name))
    return keys


def section_of(info: FieldInfo) -> Any:
    """The dataclass of a section, also of one that may be null; None for a plain value."""
    kinds = (info.annotation, *get_args(info.annotation))
    return next((kind for kind in kinds if is_dataclass(kind)), None)


def leaves(config: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Every key of a config with its value, in order; the entries of options one by one."""
    for each in fields(config):
        value, here = getattr(config, each.name), (*path, each.name)
        if is_dataclass(value):
            yield from leaves(value, here)
        elif isinstance(value, Mapping) and value:
            yield from (((*here, name), value[name]) for name in sorted(value))
        else:
            yield here, value
