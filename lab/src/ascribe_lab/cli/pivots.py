"""``ascribe pivots``: from expert traces to the turns that are worth training on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.cli.plain import App, fail, tell_error
from ascribe.steps.problems import TableError, counted
from ascribe_lab.cli import play_options
from ascribe_lab.cli.train import (
    ConfigArgument,
    DryFlag,
    EngineOption,
    KeySetting,
    ResumeFlag,
    by_config,
    print_model_path,
)
from ascribe_lab.json_journal import JournalError
from ascribe_lab.models import ServerError
from ascribe_lab.pivots import (
    LAMBDA_DIFF,
    ProfileTask,
    extract,
    make_verifier,
    profile_in_worker,
    read_responses,
    read_turns,
    report,
    score,
    select,
    write_pivots,
    write_turns,
)
from ascribe_lab.pivots.profile import ProfilingError, journal_beside
from ascribe_lab.pivots.select import Scored
from ascribe_lab.pivots.verifiers import Spec, read_spec
from ascribe_lab.pivots.verifiers.judge import JudgeBudgetError
from ascribe_lab.train.config import ConfigError
from ascribe_lab.train.launch import check_config, train, verify
from ascribe_lab.train.rounds import ENVIRONMENT, Round, Rounds, refuse_rounds, train_in_rounds

MOST_SHOWN = 20
"""Problems of traces, or choices of a label."""
BAR = 40
"""Characters of the longest bar of a histogram."""

pivots = App(
    name="pivots",
    help="""Find the turns of expert traces that are worth training on (PivotRL).

    Examples:
        ascribe pivots extract traces.jsonl -o candidates.jsonl
        ascribe pivots profile candidates.jsonl --model http://localhost:8000
        ascribe pivots select candidates.jsonl --verifier tool_call -o pivots.jsonl
    """,
)

CandidatesArgument = Annotated[
    Path,
    Argument(help="File of candidates that ascribe pivots extract wrote.", show_default=False),
]
AnswersOption = Annotated[
    Path | None, Option(help="File of the sampled responses. Default: beside the candidates.")
]
VerifierOption = Annotated[
    str, Option(help='Name of a verifier, or JSON such as {"any": ["tool_call", "shell"]}.')
]
ThresholdOption = Annotated[
    float, Option(help="Keep turns whose mean reward is below this (λ_diff).")
]
KeptOption = Annotated[
    int | None, Option("-k", help="Number of responses of each turn to use. Default: all.", min=1)
]
LabelOption = Annotated[
    str | None,
    Option(
        help="Which responses to use, if the file has those of several models or samplings: name "
        "the model, the sampling, or both."
    ),
]
BatchOption = Annotated[int, Option(help="Number of responses to request at once.", min=1)]


@pivots.command("extract")
def extract_command(
    traces: Annotated[
        list[Path],
        Argument(
            help="Files of traces: .jsonl, .jsonl.gz or .parquet; - for standard input.",
            show_default=False,
            callback=screen.stdin_or,
        ),
    ],
    out: Annotated[
        Path,
        Option(
            "--out",
            "-o",
            help="File to write the candidates to, as JSON lines; - for standard output.",
            callback=screen.stdout_or,
        ),
    ],
    seed: Annotated[
        int, Option(help="For rollouts: the --seed that they were played with.", min=0)
    ] = 0,
    first: Annotated[
        int | None,
        Option(help="For files of ascribe eval: the --first that they were played with.", min=0),
    ] = None,
    lost: Annotated[
        bool, Option("--lost", help="For rollouts: include episodes that did not succeed.")
    ] = False,
    skip_bad: Annotated[
        bool,
        Option("--skip-bad", help="Leave out traces that cannot be read, instead of stopping."),
    ] = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Make a candidate of each assistant turn: the messages before it, and its action.

    The exit code is 1 if a trace cannot be read; each reason is printed with its fix.

    Examples:
        ascribe pivots extract traces.jsonl -o candidates.jsonl
    """
    screen.keep_inputs(traces, [out], force=force)
    with screen.exits(traces[0]):
        try:
            extracted = extract(traces, seed=seed, first=first, lost=lost, skip_bad=skip_bad)
        except TableError as error:
            error.problems = error.problems[:MOST_SHOWN]
            raise
    with _errors():
        write_turns(out, extracted.candidates, facts={"traces": extracted.traces})
    count = len(extracted.candidates)
    if as_json:
        facts = {"traces": extracted.traces, "turns": extracted.turns, "candidates": count}
        problems = [problem.as_dict() for problem in extracted.problems]
        screen.print_json(
            {"out": screen.named(out), **facts, "skipped": extracted.skipped, "problems": problems}
        )
        return
    if extracted.problems:
        screen.print_problems(extracted.problems[:MOST_SHOWN])
        screen.out.print(Text(f"Left out {counted(len(extracted.problems), 'bad trace')}."))
    if extracted.skipped:
        skipped = ", ".join(f"{count:,} {kind}" for kind, count in extracted.skipped.items())
        screen.out.print(Text(f"Left out: {skipped}."))
    turns = f"{counted(extracted.turns, 'turn')}, {extracted.turns - count:,} of them copies"
    screen.out.print(
        Text(f"{counted(extracted.traces, 'trace')}, {turns}: {counted(count, 'candidate')}.")
    )
    screen.print_wrote(out)


@pivots.command("profile")
def profile_command(
    candidates: CandidatesArgument,
    model: Annotated[
        str, Option(help="A model folder, smollm2, or the http:// address of a server.")
    ],
    answers: AnswersOption = None,
    k: Annotated[int, Option("-k", help="Number of responses to each candidate.", min=1)] = 8,
    batch: BatchOption = 64,
    limit: Annotated[
        int | None,
        Option(help="Stop after this number of responses; the same command continues.", min=1),
    ] = None,
    temperature: play_options.Temperature = 1.0,
    max_tokens: play_options.MaxTokens = 512,
    backend: play_options.Backend = "transformers",
    dtype: play_options.Dtype = None,
    context: play_options.Context = None,
    served: Annotated[
        str | None, Option(help="For a server with several models: name of the model.")
    ] = None,
    label: Annotated[
        str | None,
        Option(help="Name of the model in the file of responses. Default: its own name."),
    ] = None,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Sample several responses of a model to each candidate.

    The same command continues a run that was stopped, and requests no response twice.

    Examples:
        ascribe pivots profile candidates.jsonl --model http://localhost:8000 -k 8
    """
    journal = answers or journal_beside(candidates)
    if journal.exists() and candidates.exists() and journal.samefile(candidates):
        screen.wrong_call("--answers names the file of candidates", "name another file")
    task = ProfileTask(
        str(candidates.absolute()),
        str(journal.absolute()),
        model,
        k,
        batch,
        temperature=temperature,
        max_tokens=max_tokens,
        limit=limit,
        backend=backend,
        dtype=dtype,
        context=context,
        served=served,
        label=label,
    )
    with _errors():
        read_turns(candidates)
        with screen.progress("profiling") as bar:
            done = profile_in_worker(
                task,
                on_progress=lambda done, total: bar(done / max(1, total)),
                on_message=lambda message: screen.err.print(Text(message)),
            )
    if as_json:
        screen.print_json({"answers": str(journal), "complete": done.complete, **asdict(done)})
        return
    missing = done.wanted - done.before - done.asked
    counts = f"{done.before:,} already there, {missing:,} missing; {done.seconds:.1f} s"
    screen.out.print(Text(f"{counted(done.asked, 'response')} requested, {counts}."))
    if done.response_tokens:
        tokens = f"{done.prompt_tokens:,} prompt tokens, {done.response_tokens:,} response tokens"
        screen.out.print(Text(f"{tokens}."))
    if done.refused:
        refused = f"The server refused {done.refused:,} requests, which will not be sent again"
        screen.out.print(Text(f"{refused}: {screen.safe(done.refusal, 400)}", style="yellow"))
    screen.out.print(Text(f"The responses are in {screen.safe(journal)}.", style="green"))


@pivots.command("select")
def select_command(
    candidates: CandidatesArgument,
    verifier: VerifierOption,
    out: Annotated[
        Path,
        Option(
            "--out",
            "-o",
            help="File to write the pivots to, as JSON lines; - for standard output.",
            callback=screen.stdout_or,
        ),
    ],
    answers: AnswersOption = None,
    threshold: ThresholdOption = LAMBDA_DIFF,
    k: KeptOption = None,
    label: LabelOption = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Keep the turns that the model gets right sometimes, but not often.

    These have responses of different rewards, and a mean reward below the threshold. The exit code
    is 1 if no turn is kept.

    Examples:
        ascribe pivots select candidates.jsonl --verifier tool_call -o pivots.jsonl
    """
    inputs = (candidates, answers or journal_beside(candidates))
    screen.keep_inputs(inputs, [out], force=force)
    with _errors():
        spec, scored, facts = _score(candidates, answers, verifier, k, label)
        selection = select(scored, threshold)
        facts |= {"verifier": spec, "threshold": threshold}
        kept = len(selection.kept)
        if kept:
            write_pivots(out, selection.kept, facts)
    left_out = selection.counts
    if as_json:
        screen.print_json({"out": screen.named(out), "kept": kept, "left_out": left_out, **facts})
    else:
        _print_rows({name: f"{count:,}" for name, count in {"kept": kept, **left_out}.items()})
    if not kept:
        fail("no turn is a pivot; nothing was written")
    if not as_json:
        screen.print_wrote(out)


@pivots.command("report")
def report_command(
    candidates: CandidatesArgument,
    verifier: VerifierOption,
    answers: AnswersOption = None,
    threshold: ThresholdOption = LAMBDA_DIFF,
    k: KeptOption = None,
    label: LabelOption = None,
    examples: Annotated[int, Option(help="Number of pivots to show.", min=0)] = 3,
    as_json: options.Json = False,
) -> None:
    """Print how many turns have a signal, and how many a strict reward would miss.

    Examples:
        ascribe pivots report candidates.jsonl --verifier tool_call
    """
    with _errors():
        _, scored, facts = _score(candidates, answers, verifier, k, label)
        metrics = report(scored, threshold, examples)
    if as_json:
        screen.print_json(facts | metrics)
    else:
        _print_report(metrics, facts.get("refusal"))


@pivots.command("train")
def train_command(
    config: ConfigArgument,
    engine: EngineOption = "trl",
    settings: KeySetting = [],  # noqa: B006 (typer copies it)
    every: Annotated[
        int | None, Option(help="Profile and select again after this number of iterations.", min=1)
    ] = None,
    k: Annotated[int, Option("-k", help="Number of responses to each candidate.", min=2)] = 8,
    threshold: ThresholdOption = LAMBDA_DIFF,
    sample: Annotated[
        int | None,
        Option(help="Number of candidates to profile, drawn again each time. Default: all.", min=1),
    ] = None,
    batch: BatchOption = 64,
    backend: play_options.Backend = "transformers",
    dry_run: DryFlag = False,
    resume: ResumeFlag = False,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Train a model on pivots with a config file.

    With --every N, the file that the config names holds candidates. Ascribe profiles the model,
    selects pivots, trains on them for N iterations, and repeats. The exit code is 1 if there is no
    pivot at the start.

    Examples:
        ascribe pivots train config.yaml --set model.path=smollm2 --dry-run
        ascribe pivots train config.yaml --every 10
    """
    with by_config(config, engine, settings, dry_run=dry_run, as_json=as_json) as loaded:
        if loaded.environment.name != ENVIRONMENT:
            raise ConfigError(f"environment.name: must be {ENVIRONMENT} here")
        rounds = None if every is None else Rounds(every, k, threshold, sample, batch, backend)
        if rounds is not None:
            refuse_rounds(loaded)
        if dry_run:
            check_config(loaded, engine)
            return
        if rounds is None:
            train(loaded, engine, resume=resume)
        else:
            verify(loaded, engine)
            try:
                done = train_in_rounds(loaded, engine, rounds, resume=resume, on_round=_print_round)
            except ProfilingError as error:
                screen.wrong_call(error, "continue with the same command and --resume", code=1)
            if not done[-1].kept:
                tell_error("no turn is a pivot any more")
            if not done[0].kept:
                raise typer.Exit(1)
        print_model_path(loaded)


# Shared by the commands.


@contextmanager
def _errors() -> Iterator[None]:
    """Print what went wrong; exit code 2 for a wrong call, 1 for everything else."""
    try:
        yield
    except (JudgeBudgetError, ServerError, JournalError, ProfilingError) as error:
        screen.wrong_call(
            error, "the responses so far are kept; the same command continues", code=1
        )
    except (ImportError, OSError, ValueError, TypeError) as error:
        screen.wrong_call(error)


def _score(
    candidates: Path, answers: Path | None, verifier: str, k: int | None, label: str | None
) -> tuple[Spec, list[Scored], dict[str, Any]]:
    """The verifier's spec, the scored candidates, and the model and sampling of the responses."""
    spec = read_spec(verifier)
    verify = make_verifier(spec)
    turns = read_turns(candidates)
    journal = answers or journal_beside(candidates)
    if not journal.exists():
        screen.wrong_call(
            f"there is no {screen.safe(journal)}", "sample responses with ascribe pivots profile"
        )
    responses = list(read_responses(journal))
    source = _source({(response.model, response.sampling) for response in responses}, label)
    selected = [r for r in responses if (r.model, r.sampling) == source]
    scored = score(turns.candidates, selected, verify, k)
    most = max((turn.wanted for turn in scored), default=0)
    facts: dict[str, Any] = {"model": source[0], "sampling": source[1], "k": most}
    refusals = (r.refusal for turn in scored for r in turn.responses if r.refusal)
    if (refusal := next(refusals, None)) is not None:
        facts["refusal"] = refusal
    return spec, scored, facts


def _source(sources: set[tuple[str, str]], label: str | None) -> tuple[str, str]:
    """The one model and sampling that the label selects."""
    if not sources:
        screen.wrong_call(
            "the file of responses is empty", "sample some with ascribe pivots profile"
        )
    matching = sorted(source for source in sources if label in (None, *source, " ".join(source)))
    if len(matching) != 1:
        reason = f"responses of {len(matching)} models or samplings, and one is needed"
        if not matching:
            reason = f"no responses of '{screen.safe(label)}'"
        choices = [f"--label {quote(' '.join(source))}" for source in matching or sorted(sources)]
        lines = [screen.safe(choice, 1_000) for choice in choices[:MOST_SHOWN]]
        screen.wrong_call(
            f"the file of responses has {reason}", "\n  ".join(["give one of", *lines])
        )
    return matching[0]


# Printing.


def _print_round(done: Round) -> None:
    left_out = ", ".join(f"{count:,} {kind}" for kind, count in done.left_out.items())
    kept = f"kept {done.kept:,} of {done.candidates:,} turns ({left_out})"
    mean = f"Round {done.number}: mean reward {done.mean:.3f}"
    screen.err.print(Text(f"{mean}, {kept}; {counted(done.iterations, 'iteration')}."))


def _print_report(metrics: dict[str, Any], refusal: str | None) -> None:
    kept = f"{counted(metrics['kept'], 'turn')}, of mixed outcomes and a mean below"
    means = f"functional {metrics['functional']:.3f}, strict {metrics['strict']:.3f}"
    profiled = counted(metrics["profiled"], "turn")
    rows = {
        "candidates": f"{metrics['candidates']:,}, and {metrics['copies']:,} copies of them",
        "profiled": f"{profiled}, {counted(metrics['k'], 'response')} each",
        "without signal": _share(metrics["without_signal"]),
        "kept": f"{kept} {metrics['threshold']:g}",
        "left out": ", ".join(f"{count:,} {why}" for why, count in metrics["left_out"].items()),
        "refused": refusal,
        "mean reward": means,
        "missed by the strict": _share(metrics["miss_rate"]),
    }
    _print_rows(rows)
    by_mean = {f"{mean:.3f}": count for mean, count in metrics["histogram"]}
    _print_rows(_bars(by_mean), "turns by mean reward")
    _print_rows(_bars({f"{t:g}": count for t, count in metrics["kept_at"]}), "kept by threshold")
    for example in metrics["examples"]:
        texts = {name: example[name] for name in ("demonstrated", "accepted", "refused", "why")}
        title = f"mean {example['mean']:.3f}, turn {example['turn']}"
        _print_rows({"situation": example["situation"][-300:]} | texts, title)


def _share(share: dict[str, Any] | None) -> str | None:
    if share is None:
        return None
    interval = f"{share['low']:.0%} to {share['high']:.0%}, {counted(share['turns'], 'turn')}"
    return f"{share['value']:.1%} ({interval})"


def _print_rows(rows: dict[str, str | None], title: str | None = None) -> None:
    """A table of names and texts, without those that are None."""
    table = Table(show_header=False, title=None if title is None else Text(title))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        if text is not None:
            table.add_row(name, Text(screen.safe(text, 300)))
    screen.out.print(table)


def _bars(counts: dict[str, int]) -> dict[str, str | None]:
    """Each count with a bar."""
    most = max(counts.values(), default=0)
    return {name: f"{n:,} {'█' * round(BAR * n / max(most, 1))}" for name, n in counts.items()}
