"""``ascribe pivots``: from expert traces to the turns that are worth training on."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, NoReturn, TypeVar, cast, get_args

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ascribe.cli import screen
from ascribe.cli.pivots_train import (
    BatchOption,
    ThresholdOption,
    say_estimate,
    train_command,
)
from ascribe.cli.rollout import (
    BackendOption,
    ContextOption,
    DtypeOption,
    SeedOption,
    TemperatureOption,
    TokensOption,
)
from ascribe.cli.screen import JsonFlag
from ascribe.models import ServerError
from ascribe.pivots import (
    LAMBDA_DIFF,
    Extracted,
    JournalError,
    PivotReport,
    Profiled,
    ProfileResponse,
    ProfileTask,
    ProfilingError,
    RolloutOptions,
    Scored,
    Selection,
    TraceError,
    TraceProblem,
    TurnFile,
    extract,
    make_verifier,
    profile_in_worker,
    profiles,
    random_set,
    read_responses,
    read_turns,
    report,
    score,
    select,
    write_turns,
)
from ascribe.pivots.candidates import KINDS
from ascribe.pivots.traces import Format
from ascribe.pivots.verifiers import Spec, read_spec
from ascribe.pivots.verifiers.judge import JudgeBudgetError
from ascribe.pivots.worker import journal_beside

T = TypeVar("T")
SOURCES_SHOWN = 20
BAR = 40
"""Characters of the longest bar of a histogram."""

pivots = typer.Typer(
    name="pivots",
    help="PivotRL: from expert traces to the turns that are worth training on.",
    no_args_is_help=True,
)

CandidatesArgument = Annotated[
    Path, typer.Argument(help="Candidates, from ascribe pivots extract.", show_default=False)
]
AnswersOption = Annotated[
    Path | None,
    typer.Option(help="The journal of answers. Default: beside the candidates."),
]
VerifierOption = Annotated[
    str,
    typer.Option(help='A verifier by name, or as JSON: {"any": ["tool_call", "shell"]}.'),
]
KeptOption = Annotated[
    int | None, typer.Option("-k", help="Use the first K answers. Default: all there are.", min=1)
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        help="Whose answers, if the journal holds those of several: the model, how it was sampled, "
        "or both."
    ),
]


@pivots.command("extract")
def extract_command(
    traces: Annotated[
        list[Path],
        typer.Argument(help="Files of traces: .jsonl, .jsonl.gz or .parquet.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="Where to write the candidates, as JSON lines.")],
    form: Annotated[
        str | None,
        typer.Option("--format", help="openai, sharegpt or ascribe. Default: told by the file."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="For rollouts: the --seed they were played with.", min=0)
    ] = 0,
    first: Annotated[
        int | None, typer.Option(help="For files of ascribe eval: its --first.", min=0)
    ] = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="For rollouts: take episodes that were not won, too.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out traces that cannot be read.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a candidate of every assistant turn: the whole history, and what was done.

    Ends with exit code 1 if a trace cannot be read, with every reason and what to do about it.
    """
    if form is not None and form not in get_args(Format):
        known = ", ".join(get_args(Format))
        screen.wrong_call(f"no format {screen.safe(form)!r}; there are: {known}")
    try:
        rollouts = RolloutOptions(seed, first, lost)
        found = extract(traces, cast("Format | None", form), rollouts=rollouts, skip_bad=skip_bad)
        write_turns(out, found.candidates, facts={"traces": found.traces})
    except TraceError as error:
        _refuse(error.problems, as_json=as_json)
    except OSError as error:
        screen.wrong_call(f"cannot read or write: {screen.safe(error, 300)}")
    if as_json:
        screen.print_json(
            {
                "out": str(out),
                "traces": found.traces,
                "turns": found.turns,
                "candidates": len(found.candidates),
                "problems": [problem.as_dict() for problem in found.problems],
            }
        )
        return
    _print_extracted(found, out)


@pivots.command("profile")
def profile_command(
    candidates: CandidatesArgument,
    model: Annotated[str, typer.Option(help="A model folder, smollm2, or http://... of a server.")],
    answers: AnswersOption = None,
    k: Annotated[int, typer.Option("-k", help="Answers to each candidate.", min=1)] = 8,
    batch: BatchOption = 64,
    limit: Annotated[
        int | None, typer.Option(help="Stop after so many answers; go on another time.", min=1)
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Ask for one batch, tell the cost, and stop.")
    ] = False,
    temperature: TemperatureOption = 1.0,
    max_tokens: TokensOption = 512,
    backend: BackendOption = "transformers",
    dtype: DtypeOption = None,
    context: ContextOption = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="For a server with token ids: the folder of its model's tokenizer."),
    ] = None,
    served: Annotated[
        str | None, typer.Option(help="For a server: the name of its model, if it has several.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="What to call the model in the journal. Default: its name.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask the model for K answers to each candidate; go on where a killed run was."""
    journal = answers or journal_beside(candidates)
    order = ProfileTask(
        str(candidates.absolute()),
        str(journal.absolute()),
        model,
        k,
        batch,
        temperature=temperature,
        max_tokens=max_tokens,
        limit=batch if estimate else limit,
        backend=backend,
        dtype=dtype,
        context=context,
        tokenizer=tokenizer,
        served=served,
        label=label,
    )
    _or_wrong_call(lambda: (read_turns(candidates), order.reference))
    try:
        with _counter("answers") as count:
            done = profile_in_worker(
                order, on_progress=count, on_estimate=say_estimate, on_wait=_wait
            )
    except ProfilingError as error:
        screen.err.print(Text(f"ascribe: {screen.safe(error, 400)}", style="red"))
        screen.err.print(Text("The answers so far are kept; the same command goes on."))
        raise typer.Exit(1) from error
    if as_json:
        facts = {name: getattr(done, name) for name in Profiled.__dataclass_fields__}
        screen.print_json({"answers": str(journal), "complete": done.complete, **facts})
    else:
        _print_profiled(done, journal)


@pivots.command("select")
def select_command(
    candidates: CandidatesArgument,
    verifier: VerifierOption,
    out: Annotated[Path, typer.Option(help="Where to write the pivots, as JSON lines.")],
    answers: AnswersOption = None,
    threshold: ThresholdOption = LAMBDA_DIFF,
    k: KeptOption = None,
    label: LabelOption = None,
    random: Annotated[
        Path | None,
        typer.Option(help="Also write as many candidates at random, for comparison."),
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Keep the turns with mixed outcomes that are still hard: variance > 0, mean < threshold.

    Ends with exit code 1 if no turn is kept.
    """
    read = _scored(candidates, answers, verifier, k, label)
    found = _or_wrong_call(lambda: select(read.scored, threshold))
    facts = read.facts | {"verifier": read.spec, "threshold": threshold}
    if found.kept:
        _write(out, found.kept, facts | {"chosen": "mixed outcomes, mean below the threshold"})
        if random is not None:
            drawn = random_set(read.scored, len(found.kept), seed)
            _write(random, drawn, facts | {"chosen": "at random", "seed": seed})
    if as_json:
        left_out = {kind.value: len(ones) for kind, ones in found.left_out.items()}
        screen.print_json({"out": str(out), "kept": len(found.kept), "left_out": left_out, **facts})
    else:
        _print_selection(found, out)
    if not found.kept:
        raise typer.Exit(1)


@pivots.command("report")
def report_command(
    candidates: CandidatesArgument,
    verifier: VerifierOption,
    answers: AnswersOption = None,
    threshold: ThresholdOption = LAMBDA_DIFF,
    k: KeptOption = None,
    label: LabelOption = None,
    examples: Annotated[int, typer.Option(help="How many pivots to show.", min=0)] = 3,
    as_json: JsonFlag = False,
) -> None:
    """Show where the signal is, and what a strict reward would miss of it."""
    read = _scored(candidates, answers, verifier, k, label)
    found = _or_wrong_call(lambda: report(read.scored, threshold, examples))
    if as_json:
        screen.print_json(read.facts | found.as_dict())
    else:
        _print_report(found, read.facts.get("refusal"))


pivots.command("train")(train_command)


# What the commands share.


@dataclass(frozen=True)
class _Read:
    spec: Spec
    scored: list[Scored]
    facts: dict[str, Any]
    """Whose answers they are, and the server's words if it refused some."""


def _scored(
    candidates: Path, answers: Path | None, verifier: str, k: int | None, label: str | None
) -> _Read:
    """The verifier's spec, the candidates with their rewards, and whose answers they have."""
    spec = _or_wrong_call(lambda: read_spec(verifier))
    verify = _or_wrong_call(lambda: make_verifier(spec))
    turns: TurnFile = _or_wrong_call(lambda: read_turns(candidates))
    journal = answers or journal_beside(candidates)
    if not journal.exists():
        screen.wrong_call(f"there is no {screen.safe(journal)}; run ascribe pivots profile first")
    given = _or_wrong_call(lambda: list(read_responses(journal)))
    model, sampling = _source(given, label)
    mine = [answer for answer in given if (answer.model, answer.sampling) == (model, sampling)]
    scored = _or_wrong_call(lambda: score(turns.candidates, mine, verify, k))
    wanted = max((one.wanted for one in scored), default=0)
    facts = {"model": model, "sampling": sampling, "k": wanted}
    refusals = (answer.refusal for one in scored for answer in one.responses if answer.refusal)
    if (refusal := next(refusals, None)) is not None:
        facts["refusal"] = refusal
    return _Read(spec, scored, facts)


def _source(answers: Sequence[ProfileResponse], label: str | None) -> tuple[str, str]:
    """The one model and sampling whose answers are meant."""
    known = sorted({(answer.model, answer.sampling) for answer in answers})
    meant = [one for one in known if label in (None, *one, " ".join(one))]
    if not known:
        screen.wrong_call("the journal holds no answers; run ascribe pivots profile first")
    if not meant:
        _offer(known, f"holds no answers of {screen.safe(label)!r}")
    if len(meant) > 1:
        _offer(meant, f"holds answers of {len(meant)} models or samplings, and one is needed")
    return meant[0]


def _offer(sources: Sequence[tuple[str, str]], said: str) -> NoReturn:
    """Say which options there are, and stop."""
    alike = len({model for model, _ in sources}) < len(sources)
    for one in sources[:SOURCES_SHOWN]:
        choice = quote(" ".join(one) if alike else one[0])
        # Without line breaks of our own, for it is there to be copied.
        screen.err.print(Text(f"  --label {screen.safe(choice, 1_000)}"), soft_wrap=True)
    screen.wrong_call(f"the journal {said}: give one of the options above")


def _write(path: Path, scored: Sequence[Scored], facts: dict[str, Any]) -> None:
    chosen = [one.candidate for one in scored]
    _or_wrong_call(lambda: write_turns(path, chosen, KINDS[1], facts, profiles(scored)))


def _or_wrong_call(work: Callable[[], T]) -> T:
    try:
        return work()
    except (JudgeBudgetError, ServerError, JournalError) as error:
        screen.err.print(Text(f"ascribe: {screen.safe(error, 400)}", style="red"))
        raise typer.Exit(1) from error
    except (ImportError, OSError, ValueError, TypeError) as error:
        screen.wrong_call(screen.safe(error, 400))


@contextmanager
def _counter(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error that counts."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen.err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, wanted: bar.update(task, completed=done, total=wanted)


def _wait() -> None:
    screen.err.print(Text("Another run is writing its last answers down; waiting for it."))


def _refuse(problems: Any, *, as_json: bool) -> None:
    if as_json:
        screen.print_json({"refused": True, "problems": [p.as_dict() for p in problems]})
    else:
        screen.err.print(_problem_table(problems))
        screen.err.print(
            Text("Refused; nothing was written. --skip-bad leaves bad traces out.", "bold red")
        )
    raise typer.Exit(1)


def _problem_table(problems: list[TraceProblem] | tuple[TraceProblem, ...]) -> Table:
    """What is wrong: each kind once, with the first lines and what to do."""
    table = Table()
    table.add_column("problem", no_wrap=True)
    for name in ("found", "lines", "what to do"):
        table.add_column(name, overflow="fold")
    for fault in dict.fromkeys(problem.fault for problem in problems):
        ones = [problem for problem in problems if problem.fault is fault]
        lines = ", ".join(str(one.line) for one in ones[:3] if one.line)
        more = f", … ({len(ones):,})" if len(ones) > 3 else ""
        table.add_row(
            Text(f"{fault.label}\n{fault.severity.name.lower()}", screen.STYLES[fault.severity]),
            Text(f"{screen.safe(ones[0].file, 60)}: {screen.safe(ones[0].detail, 240)}"),
            Text(lines + more),
            Text(fault.advice),
        )
    return table


def _print_extracted(found: Extracted, out: Path) -> None:
    if found.problems:
        screen.out.print(_problem_table(found.problems))
    copies = found.turns - len(found.candidates)
    said = f"{found.traces:,} traces, {found.turns:,} turns, {copies:,} of them copies: "
    screen.out.print(Text(f"{said}{len(found.candidates):,} candidates."))
    screen.out.print(Text(f"Wrote {screen.safe(out)}.", style="green"))


def _print_profiled(done: Profiled, journal: Path) -> None:
    said = f"{done.asked:,} answers asked for, {done.before:,} were there already, "
    said += f"{done.wanted - done.before - done.asked:,} are missing"
    screen.out.print(Text(f"{said}; {done.seconds:.1f} s."))
    if done.asked:
        tokens = f"{done.prompt_tokens:,} tokens of prompts, {done.response_tokens:,} of answers"
        screen.out.print(Text(f"{tokens}."))
    if done.refused:
        said = f"{done.refused:,} were refused by the server and will not be asked for again"
        screen.out.print(Text(f"{said}: {screen.safe(done.refusal, 400)}", style="yellow"))
    screen.out.print(Text(f"The answers are in {screen.safe(journal)}.", style="green"))


def _print_selection(found: Selection, out: Path) -> None:
    table = Table()
    table.add_column("candidates")
    table.add_column("turns", justify="right")
    table.add_row("kept", f"{len(found.kept):,}")
    for kind, ones in found.left_out.items():
        table.add_row(kind.value, f"{len(ones):,}")
    screen.out.print(table)
    if found.kept:
        screen.out.print(Text(f"Wrote {screen.safe(out)}.", style="green"))
    else:
        screen.err.print(Text("No turn is a pivot; nothing was written.", style="bold red"))


def _print_report(found: PivotReport, refusal: str | None) -> None:
    facts = Table(show_header=False)
    facts.add_row("candidates", f"{found.candidates:,}, and {found.copies:,} copies of them")
    facts.add_row("profiled", f"{found.profiled:,} turns, {found.k} answers each")
    if found.without_signal is not None:
        facts.add_row("without signal", _share(found.without_signal))
    kept = f"{found.kept:,} turns, of mixed outcomes and a mean below {found.threshold:g}"
    facts.add_row("kept", kept)
    facts.add_row("left out", ", ".join(f"{n:,} {kind}" for kind, n in found.left_out.items()))
    if refusal is not None:
        facts.add_row("refused", Text(screen.safe(refusal, 400)))
    rewards = f"functional {found.functional:.3f}, strict {found.strict:.3f}"
    facts.add_row("mean reward", rewards)
    if found.miss_rate is not None:
        facts.add_row("missed by the strict", _share(found.miss_rate))
    screen.out.print(facts)
    _print_bars("turns by mean reward", [(f"{mean:.3f}", n) for mean, n in found.histogram])
    _print_bars("kept by threshold", [(f"{limit:g}", n) for limit, n in found.kept_at])
    _print_bars(
        "kept by place in the trace, in fifths",
        [(f"{fifth} of 5", n) for fifth, n, _ in found.by_fifth],
    )
    for one in found.examples:
        table = Table(show_header=False, title=Text(f"mean {one.mean:.3f}, turn {one.turn}"))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row("situation", Text(screen.safe(one.situation[-300:], 300)))
        table.add_row("demonstrated", Text(screen.safe(one.demonstrated, 300)))
        for name, text in (("accepted", one.accepted), ("refused", one.refused)):
            if text is not None:
                table.add_row(name, Text(screen.safe(text, 300)))
        if one.why:
            table.add_row("why", Text(screen.safe(one.why, 200)))
        screen.out.print(table)


def _share(share: Any) -> str:
    return f"{share.value:.1%} ({share.low:.0%} to {share.high:.0%}, {share.turns:,} turns)"


def _print_bars(title: str, rows: list[tuple[str, int]]) -> None:
    most = max((count for _, count in rows), default=0)
    table = Table(title=Text(title), show_header=False, title_justify="left")
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column(no_wrap=True, min_width=BAR)
    for name, count in rows:
        table.add_row(name, f"{count:,}", "█" * round(BAR * count / most) if most else "")
    screen.out.print(table)
