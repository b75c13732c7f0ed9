"""``ascribe audit``: score every recipe against exact advantages."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text
from typer import Option

from ascribe.cli import play_options, screen
from ascribe.steps.atomic import write_file
from ascribe.steps.hints import install, unknown
from ascribe.steps.problems import counted

if TYPE_CHECKING:
    from ascribe.audit import Audit, Settings
    from ascribe.audit.decisions import DecisionAudit
    from ascribe.audit.policy import PolicyAudit
    from ascribe.audit.run import Scored

LEADER = "sbc"
"""Paired differences are with this recipe, unless ``--recipe`` names another."""

COLUMNS = 5
"""Columns of means that fit into a narrow terminal; --page and --json have all."""


def audit(
    recipe: Annotated[
        list[str],
        Option(
            help="Score this recipe as well: a name, or module:Name of your own. Repeatable.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 (typer copies it)
    world: Annotated[
        list[str], Option(help="Only in this world. Repeatable.", show_default=False)
    ] = [],  # noqa: B006 (typer copies it)
    size: Annotated[
        list[int], Option(help="Only this group size. Repeatable.", min=2, show_default=False)
    ] = [],  # noqa: B006 (typer copies it)
    full: Annotated[
        bool, Option("--full", help="Every recipe, sizes 4, 8 and 16: up to 15 minutes.")
    ] = False,
    blocks: Annotated[
        int | None, Option(help="Independent blocks of tasks.", min=2, show_default=False)
    ] = None,
    paraphrase: Annotated[
        float | None, Option(help="Probability that an observation is paraphrased.", min=0, max=1)
    ] = None,
    noise: Annotated[
        float | None, Option(help="Noise of fingerprints.", min=0, show_default=False)
    ] = None,
    blur: Annotated[
        float | None,
        Option(
            help="How similar the fingerprints of all states are.", min=0, max=1, show_default=False
        ),
    ] = None,
    momentum: Annotated[
        float, Option(help="Let policies learn with this momentum too.", min=0, max=0.99)
    ] = 0.0,
    seed: Annotated[int, Option(help="Seed of all randomness.", min=0)] = 0,
    processes: Annotated[
        int, Option(help="Processes that share the work; 0 takes one per core.", min=0)
    ] = 0,
    figure: Annotated[
        Path | None, Option(help="Draw a figure: NAME.png and NAME.svg.", show_default=False)
    ] = None,
    page: Annotated[
        Path | None, Option(help="Write the tables as Markdown.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, Option("--json", help="Print one JSON object per line and nothing else.")
    ] = False,
    env: Annotated[
        str | None,
        Option(help="Audit a policy in this environment instead.", show_default=False),
    ] = None,
    model: Annotated[
        str | None, Option(help="With --env: the model folder.", show_default=False)
    ] = None,
    settings: play_options.EnvSettings = [],  # noqa: B006 (typer copies it)
    style: play_options.Style = "paper",
    batches: Annotated[int, Option(help="With --env: batches to play.", min=4)] = 40,
    decisions: Annotated[
        int, Option(help="With --env: decisions to play on from; 0 for none.", min=0)
    ] = 0,
    groups: Annotated[int, Option(help="With --env: tasks of a batch.", min=1)] = 8,
    max_tokens: play_options.MaxTokens = 512,
    max_turns: play_options.MaxTurns = None,
    layer: Annotated[int, Option(help="With --env: decoder block of the fingerprints.")] = -2,
    radius: Annotated[
        float | None,
        Option(help="With --env: radius of clusters of fingerprints.", min=0, show_default=False),
    ] = None,
    dtype: play_options.Dtype = None,
    states: play_options.States = "observation",
    work: Annotated[
        Path | None,
        Option(help="With --env: folder for finished batches, to go on.", show_default=False),
    ] = None,
) -> None:
    """Score recipes where the truth is known: in small worlds, or for your own policy.

    In the worlds, shows how close each recipe comes to the exact policy gradient, and how fast a
    policy learns with it; the quick audit takes under a minute. With --env and --model, plays many
    batches and compares each recipe's gradient with one that all batches agree on.
    """
    if env is not None or model is not None:
        if env is None or model is None:
            screen.wrong_call("give both --env and --model")
        setup = {"style": style, "options": screen.settings(settings)}
        plan = {"groups": groups, "size": size[0] if size else 8, "seed": seed}
        limits = {"max_tokens": max_tokens, "max_turns": max_turns}
        kept = {
            "batches": batches,
            "decisions": decisions,
            "layer": layer,
            "radius": radius,
            "dtype": dtype,
            "states": states,
            "work": work,
        }
        _audit_policy(env, model, recipe, setup, plan | limits | kept, as_json=as_json)
        return
    from ascribe.audit import FULL, FULL_FORMS, QUICK, QUICK_FORMS, WORLDS
    from ascribe.audit import report as reports

    if wrong := [name for name in world if name not in WORLDS]:
        screen.wrong_call(unknown("world", wrong[0], WORLDS))
    given = {
        "worlds": tuple(world),
        "sizes": tuple(size),
        "blocks": blocks,
        "paraphrase": paraphrase,
        "noise": noise,
        "blur": blur,
    }
    changes: dict[str, Any] = {k: v for k, v in given.items() if v not in (None, ())}
    chosen = replace(FULL if full else QUICK, seed=seed, momentum=momentum, **changes)
    if 8 not in chosen.sizes:  # policies learn at a group size that is scored
        chosen = replace(chosen, learning_size=chosen.sizes[0])
    scored = _recipes((*(FULL_FORMS if full else QUICK_FORMS), *recipe))
    try:
        result = _with_progress(scored, chosen, processes or os.cpu_count() or 1)
    except ValueError as error:  # of a recipe of the user's own
        screen.wrong_call(screen.safe(error, 400))

    lines = list(reports.json_lines(result, recipe[-1] if recipe else LEADER))
    if page is not None:
        with screen.written(page):
            write_file(page, reports.page(lines))
    if figure is not None:
        try:
            with screen.written(figure):
                reports.figure(lines, figure)
        except ImportError:
            screen.wrong_call(f"a figure needs matplotlib: {install('figures')}")
    if as_json:
        for line in lines:
            print(json.dumps(line))
        return
    _print(lines)
    footer = f"{counted(chosen.blocks, 'block')} of {counted(chosen.tasks, 'task')}"
    screen.out.print(Text(f"{footer}, {result.seconds:.0f} s.", style="dim"))


def _recipes(names: tuple[str, ...]) -> "dict[str, Scored]":
    from ascribe.audit import scored_recipe

    screen.find_own_code(*names)
    try:
        return {name: scored_recipe(name) for name in names}
    except ValueError as error:
        screen.wrong_call(screen.safe(error, 400))


def _with_progress(scored: "dict[str, Scored]", settings: "Settings", processes: int) -> "Audit":
    from ascribe.audit import audit as run

    with screen.progress("audit") as bar:
        show = lambda done, total: bar(done / max(total, 1))  # noqa: E731 (two arguments to one)
        return run(scored, settings, processes=processes, progress=show)


def _audit_policy(
    env: str,
    model: str,
    recipes: list[str],
    setup: dict[str, Any],
    run: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    from ascribe.audit.policy import POLICY_FORMS, PolicyPlayer, policy_lines
    from ascribe.rollout import Plan, Sampling, Setup

    screen.find_own_code(env, *recipes)
    try:
        place = Setup(env, **setup)
        tasks, turns = place.facts[0], place.turns(run["max_turns"])
        groups = run["groups"]
        sampling = Sampling(max_tokens=run["max_tokens"])
        # The same tasks in every batch, where they have numbers: one objective for all batches.
        numbers = None if tasks is None else [group % tasks for group in range(groups)]
        plan = Plan(groups, run["size"], turns, run["seed"], env, numbers, sampling)
        names = (*POLICY_FORMS, *recipes)
        options = {"names": names, "layer": run["layer"], "radius": run["radius"]}
        options |= {"dtype": run["dtype"], "states": run["states"]}
        with tempfile.TemporaryDirectory() as spare:
            player = PolicyPlayer(place, model, plan, run["work"] or Path(spare), **options)
            with screen.progress("batches") as bar:
                found = player.gradients(run["batches"], bar)
            with screen.progress("decisions") as bar:
                decided = player.decisions(run["decisions"], bar) if run["decisions"] else None
    except (ImportError, OSError, ValueError, TypeError) as error:
        screen.wrong_call(screen.safe(error, 400))
    if as_json:
        for line in policy_lines(found, decided):
            print(json.dumps(line))
        return
    _print_policy(found, decided)


def _print_policy(found: "PolicyAudit", decided: "DecisionAudit | None") -> None:
    for objective, by_recipe in found.scores.items():
        rows = [
            [
                name,
                f"{score.update:.3f}",
                f"{score.batch.value:.3f} ±{(score.batch.high - score.batch.low) / 2:.3f}",
                f"{score.mean:.3f}",
                f"{score.variance:.1f}",
            ]
            for name, score in by_recipe.items()
        ]
        head = ["recipe", "update_cosine", "batch_cosine", "mean_cosine", "variance"]
        if decided:
            head.append("decision_cosine")
            for row, one in zip(rows, decided.scores[objective].values(), strict=True):
                row.append(f"{one.cosine:.3f} ±{(one.high - one.low) / 2:.3f}")
        screen.out.print(_table(f"Objective: {objective}", head, rows))
        noise = (
            f"The references of the two halves have a cosine of {found.precision[objective]:.3f}; "
            "mean cosine can hardly be higher."
        )
        if decided:
            noise += f" {decided.noise[objective]:.0%} of the variance of Q inside states is noise;"
            noise += " decision cosine is corrected for it."
        screen.out.print(Text(noise, style="dim"))
    footer = f"{found.batches} batches, success {found.success:.2f}"
    if decided:
        footer += (
            f"; {counted(decided.decisions, 'decision')} in {counted(decided.states, 'state')}"
        )
    screen.out.print(Text(f"{footer}.", style="dim"))


def _print(lines: list[dict[str, Any]]) -> None:
    from ascribe.audit.report import MINUS, PAIRED, AuditTables

    tables = AuditTables(lines)
    for size in tables.sizes:
        head, rows = tables.means(size)
        narrow = head[:COLUMNS], [row[:COLUMNS] for row in rows]
        screen.out.print(_table(f"Means over worlds, group size {size}", *narrow))
    size = tables.learning_size()
    for metric in PAIRED[::-1]:
        if tables.has(size, metric):
            title = f"{metric.replace('_', ' ')} in each world, group size {size}"
            screen.out.print(_table(title, *tables.starred(size, metric)))
    leader = tables.pairs[0].split(MINUS)[0] if tables.pairs else LEADER
    note = f"* the paired difference to {leader} excludes zero (95 % over blocks of tasks)"
    screen.out.print(Text(note, style="dim"))


def _table(title: str, head: list[str], rows: list[list[str]]) -> Table:
    # Without lines between columns, so that it fits 80.
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for index, name in enumerate(head):
        justify: Literal["left", "right"] = "right" if index else "left"
        table.add_column(name.replace("_", "\n"), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
