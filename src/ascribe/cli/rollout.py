"""``ascribe rollout`` and ``ascribe eval``: play episodes, and count how many are won."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer
from rich.table import Table
from rich.text import Text

from ascribe.cli import screen
from ascribe.cli.screen import JsonFlag
from ascribe.rollout import (
    FailurePolicy,
    Model,
    Plan,
    Rollout,
    Sampling,
    Setup,
    Success,
    play,
    save,
    success,
)
from ascribe.rollout.record import States
from ascribe.rollout.setup import PoolName
from ascribe.steps.files import SUFFIXES

T = TypeVar("T")

EnvOption = Annotated[
    str,
    typer.Option("--env", help="An environment (ascribe env list), or package.module:factory."),
]
ModelOption = Annotated[
    str,
    typer.Option(
        help="A model folder, smollm2, http://... of an OpenAI-compatible server, random or expert."
    ),
]
BackendOption = Annotated[
    str, typer.Option(help="Who runs a model folder: transformers, or vllm in this process.")
]
DtypeOption = Annotated[
    str | None, typer.Option(help="Type to compute in, such as bfloat16. Default: the backend's.")
]
ContextOption = Annotated[
    int | None, typer.Option(help="Tokens that prompt and answer may have together.", min=2)
]
TokenizerOption = Annotated[
    str | None, typer.Option(help="For a server: the folder with its model's tokenizer.")
]
EnvSetting = Annotated[
    list[str],
    typer.Option("--set", help="An option of the environment: --set depth=2. Repeatable."),
]
StyleOption = Annotated[
    str, typer.Option(help="Prompts: paper (think, then act) or plain (short; for small models).")
]
SeedOption = Annotated[int, typer.Option(help="The same seed gives the same tasks.", min=0)]
TemperatureOption = Annotated[float, typer.Option(help="0 takes the likeliest token.", min=0.0)]
TokensOption = Annotated[int, typer.Option(help="Tokens that an answer may have.", min=1)]
TurnsOption = Annotated[
    int | None,
    typer.Option(help="Decisions of an episode. Default: the environment's limit.", min=1),
]
PoolOption = Annotated[
    str, typer.Option(help="Where environments run: processes, ray, or serial (here, no limits).")
]
WorkersOption = Annotated[int, typer.Option(help="Processes or actors of the pool.", min=1)]
LimitOption = Annotated[float, typer.Option(help="Seconds that one step may take.", min=0.001)]
EpisodeOption = Annotated[
    float | None, typer.Option(help="Seconds that an episode may spend in its environment.")
]
RetriesOption = Annotated[int, typer.Option(help="How often a failed episode is taken up.", min=0)]


def rollout(
    env: EnvOption,
    model: ModelOption,
    out: Annotated[Path, typer.Option(help="Where to write: .parquet, .jsonl or .jsonl.gz.")],
    groups: Annotated[int, typer.Option(help="How many tasks.", min=1)] = 16,
    size: Annotated[int, typer.Option(help="How many episodes of each task.", min=1)] = 8,
    seed: SeedOption = 0,
    backend: BackendOption = "transformers",
    dtype: DtypeOption = None,
    context: ContextOption = None,
    tokenizer: TokenizerOption = None,
    settings: EnvSetting = [],  # noqa: B006 (typer copies it)
    style: StyleOption = "paper",
    temperature: TemperatureOption = 1.0,
    max_tokens: TokensOption = 512,
    max_turns: TurnsOption = None,
    states: Annotated[
        str, typer.Option(help="The column state: environment (its own key) or observation.")
    ] = "environment",
    pool: PoolOption = "processes",
    workers: WorkersOption = 2,
    step_limit: LimitOption = 60.0,
    episode_limit: EpisodeOption = None,
    retries: RetriesOption = 2,
    smallest_group: Annotated[
        int | None,
        typer.Option(help="Trajectories that a group needs to count. Default: all.", min=1),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Play groups of episodes and write them to a file that check and credit read."""
    if not out.name.endswith(SUFFIXES):
        screen.wrong_call(f"cannot tell the format of {screen.safe(out)}; end it in {SUFFIXES}")
    _one_of("states", states, ("environment", "observation"))
    policy = _model(model, backend, dtype, context, tokenizer)
    setup = _setup(env, settings, style, pool, workers, step_limit)
    plan = _plan(
        setup,
        env,
        groups=groups,
        size=size,
        seed=seed,
        max_turns=max_turns,
        temperature=temperature,
        max_tokens=max_tokens,
        episode_limit=episode_limit,
    )
    played = _play(setup, policy, plan, FailurePolicy(retries, smallest_group))
    if played.trajectories:
        _save(played, out, cast("States", states))
    _tell(played, out, as_json=as_json)


def evaluate(
    env: EnvOption,
    model: ModelOption,
    tasks: Annotated[int, typer.Option(help="How many tasks.", min=1)] = 100,
    first: Annotated[int, typer.Option(help="The number of the first task.", min=0)] = 0,
    repeats: Annotated[int, typer.Option(help="Episodes of each task.", min=1)] = 1,
    seed: SeedOption = 0,
    backend: BackendOption = "transformers",
    dtype: DtypeOption = None,
    context: ContextOption = None,
    tokenizer: TokenizerOption = None,
    settings: EnvSetting = [],  # noqa: B006 (typer copies it)
    style: StyleOption = "paper",
    temperature: TemperatureOption = 0.4,
    max_tokens: TokensOption = 512,
    max_turns: TurnsOption = None,
    out: Annotated[Path | None, typer.Option(help="Also write the episodes to this file.")] = None,
    pool: PoolOption = "processes",
    workers: WorkersOption = 2,
    step_limit: LimitOption = 60.0,
    episode_limit: EpisodeOption = None,
    retries: RetriesOption = 2,
    as_json: JsonFlag = False,
) -> None:
    """Print how many tasks are solved, by family, with a 95 % interval."""
    if out is not None and not out.name.endswith(SUFFIXES):
        screen.wrong_call(f"cannot tell the format of {screen.safe(out)}; end it in {SUFFIXES}")
    policy = _model(model, backend, dtype, context, tokenizer)
    setup = _setup(env, settings, style, pool, workers, step_limit)
    count = setup.facts[0]
    numbers = (
        range(first, first + tasks) if count is None else range(first, min(first + tasks, count))
    )
    if not numbers:
        screen.wrong_call(f"there is no task {first}; there are {count}, counted from 0")
    plan = _plan(
        setup,
        env,
        groups=len(numbers),
        size=repeats,
        tasks=list(numbers),
        seed=seed,
        max_turns=max_turns,
        temperature=temperature,
        max_tokens=max_tokens,
        episode_limit=episode_limit,
    )
    played = _play(setup, policy, plan, FailurePolicy(retries, smallest_group=1))
    if out is not None and played.trajectories:
        _save(played, out)
    _tell(played, out, as_json=as_json)


def _model(
    name: str, backend: str, dtype: str | None, context: int | None, tokenizer: str | None
) -> Model:
    _one_of("backend", backend, ("transformers", "vllm"))
    return Model(name, backend, dtype, context, tokenizer)


def _setup(
    env: str, settings: list[str], style: str, pool: str, workers: int, step_limit: float
) -> Setup:
    _one_of("pool", pool, ("processes", "ray", "serial"))
    options = screen.settings(settings)
    setup = Setup(env, options, style, cast("PoolName", pool), workers, step_limit)
    _or_wrong_call(lambda: (setup.facts, setup.agent))
    return setup


def _one_of(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        screen.wrong_call(f"no {what} {screen.safe(given)!r}; there are: {', '.join(known)}")


def _plan(setup: Setup, name: str, **options: Any) -> Plan:
    turns = options.pop("max_turns") or setup.facts[1]
    if turns is None:
        screen.wrong_call("the environment names no limit of its own: give --max-turns")
    sampling = Sampling(options.pop("temperature"), max_tokens=options.pop("max_tokens"))
    return Plan(max_turns=turns, name=name, sampling=sampling, **options)


def _play(setup: Setup, model: Model, plan: Plan, failures: FailurePolicy) -> Rollout:
    what = f"{plan.groups * plan.size} episodes"
    with screen.progress(what) as report, screen.stdout_to_stderr():
        return _or_wrong_call(lambda: play(setup, model, plan, failures=failures, progress=report))


def _or_wrong_call(work: Callable[[], T]) -> T:
    """The result, or what is not there or was given wrongly, as a wrong call."""
    try:
        return work()
    except (ImportError, OSError, ValueError, TypeError) as error:
        screen.wrong_call(screen.safe(error, 400))


def _save(played: Rollout, out: Path, states: States = "environment") -> None:
    try:
        save(played, out, states)
    except OSError as error:
        screen.wrong_call(f"cannot write {screen.safe(out)}: {error.strerror or error}")


def _tell(played: Rollout, out: Path | None, *, as_json: bool) -> None:
    """Print success by family, what was lost, and the speed; stop if nothing was completed."""
    written = out if played.trajectories else None
    rows = success(played)
    if as_json:
        screen.print_json(
            {
                "out": None if written is None else str(written),
                "success": [asdict(row) for row in rows],
                "failed": [asdict(lost) for lost in played.failed],
                "dropped": [group.group for group in played.dropped],
                "retries": played.retries,
                "clock": asdict(played.clock)
                | {"tokens_per_second": played.clock.tokens_per_second},
            }
        )
    else:
        _print(played, rows, written)
    if not played.trajectories:
        screen.err.print(Text("No episode was completed.", style="bold red"))
        raise typer.Exit(1)


def _print(played: Rollout, rows: list[Success], written: Path | None) -> None:
    for group in played.dropped:
        screen.out.print(Text(f"Dropped {screen.safe(group, 300)}", style="red"))
    if played.retries:
        screen.out.print(Text(f"Took up {played.retries:,} episodes again.", style="yellow"))
    table = Table()
    table.add_column("family")
    for name in ("tasks", "episodes", "success", "95 %", "reward", "turns", "valid"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        if row.family == "all":
            table.add_section()
        table.add_row(
            Text(screen.safe(row.family, 40)),
            f"{row.tasks:,}",
            f"{row.episodes:,}",
            f"{row.rate:.1%}",
            f"{row.low:.0%} to {row.high:.0%}",
            f"{row.reward:.3g}",
            f"{row.turns:.1f}",
            f"{row.valid:.1%}",
        )
    screen.out.print(table)
    clock = played.clock
    said = f"{clock.seconds:.1f} s: policy {clock.policy_seconds:.1f} s"
    if clock.tokens:
        said += f" ({clock.tokens:,} tokens, {clock.tokens_per_second:,.0f} a second)"
    screen.err.print(Text(f"{said}, environments {clock.environment_seconds:.1f} s.", style="dim"))
    if written is not None:
        screen.out.print(Text(f"Wrote {screen.safe(written)}.", style="green"))
