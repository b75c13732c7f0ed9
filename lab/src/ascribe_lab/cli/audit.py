"""``ascribe audit``: score every recipe against exact advantages."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from rich import box
from rich.table import Table
from rich.text import Text
from typer import Option

from ascribe.cli import options, screen
from ascribe.steps.hints import unknown
from ascribe.steps.problems import counted
from ascribe_lab.cli import play_options

if TYPE_CHECKING:
    from ascribe_lab.audit import Audit
    from ascribe_lab.audit.decisions import DecisionAudit
    from ascribe_lab.audit.policy import PolicyAudit

LEADER = "sbc"
"""Paired differences are with this recipe, unless ``--recipe`` names another."""

COLUMNS = 5
"""Columns of means that fit into a narrow terminal; --json has all."""


def audit(
    recipe: Annotated[
        list[str],
        Option(
            help="Also score this recipe: a name, or module:Name for one of your own. Repeatable.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 (typer copies it)
    world: Annotated[
        list[str], Option(help="Run in this world alone. Repeatable.", show_default=False)
    ] = [],  # noqa: B006 (typer copies it)
    size: Annotated[
        list[int],
        Option(help="Run with this group size alone. Repeatable.", min=2, show_default=False),
    ] = [],  # noqa: B006 (typer copies it)
    full: Annotated[
        bool, Option("--full", help="Score every recipe in every world; takes up to 15 minutes.")
    ] = False,
    blocks: Annotated[
        int | None, Option(help="Number of independent blocks of tasks.", min=2, show_default=False)
    ] = None,
    paraphrase: Annotated[
        float | None, Option(help="Probability that an observation is paraphrased.", min=0, max=1)
    ] = None,
    noise: Annotated[
        float | None, Option(help="Noise that is added to fingerprints.", min=0, show_default=False)
    ] = None,
    blur: Annotated[
        float | None,
        Option(
            help="Similarity of the fingerprints of different states.",
            min=0,
            max=1,
            show_default=False,
        ),
    ] = None,
    plain: Annotated[bool, Option("--plain", help="Also train policies without momentum.")] = False,
    seed: Annotated[int, Option(help="Random seed.", min=0)] = 0,
    processes: Annotated[int, Option(help="Number of processes; 0 takes one per core.", min=0)] = 0,
    as_json: Annotated[bool, Option("--json", help="Print JSON lines instead of tables.")] = False,
    env: Annotated[
        str | None,
        Option(
            help="Audit a policy in this environment, instead of the worlds.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None, Option(help="With --env: folder of the model.", show_default=False)
    ] = None,
    settings: play_options.EnvSettings = [],  # noqa: B006 (typer copies it)
    style: play_options.Style = "paper",
    batches: Annotated[int, Option(help="With --env: number of batches to play.", min=4)] = 40,
    decisions: Annotated[
        int,
        Option(help="With --env: number of decisions to measure by playing on; 0 for none.", min=0),
    ] = 0,
    groups: Annotated[int, Option(help="With --env: number of tasks in a batch.", min=1)] = 8,
    max_tokens: play_options.MaxTokens = 512,
    max_turns: play_options.MaxTurns = None,
    layer: Annotated[
        int, Option(help="With --env: layer that gives the fingerprints; -1 is the last.")
    ] = -2,
    radius: Annotated[
        float | None,
        Option(
            help="With --env: radius of the clusters of fingerprints.", min=0, show_default=False
        ),
    ] = None,
    dtype: play_options.Dtype = None,
    states: play_options.States = "observation",
    work: Annotated[
        Path | None,
        Option(
            help="With --env: folder for finished batches, to continue a stopped audit.",
            show_default=False,
        ),
    ] = None,
    _quiet: options.Quiet = False,
) -> None:
    """Compare recipes with exact advantages in small worlds, or on your own policy.

    In the worlds, shows how close each recipe comes to the exact policy gradient, and how fast a
    policy learns with it; without --full this takes under a minute. With --env and --model, plays
    many batches and compares the gradient of each recipe with that of all batches together.

    Examples:
        ascribe audit
        ascribe audit --recipe my_recipes:MyRecipe --seed 1
        ascribe audit --env textcraft --model FOLDER
    """
    screen.find_own_code(env or "", *recipe)
    if env is not None and model is not None:
        from ascribe_lab.audit.policy import POLICY_FORMS, PolicyPlayer, policy_lines
        from ascribe_lab.rollout import Plan, Sampling, Setup

        try:
            place = Setup(env, style=style, options=screen.settings(settings))
            # The same tasks in every batch, where they have numbers: one objective for all batches.
            tasks = place.facts[0]
            numbers = None if tasks is None else [group % tasks for group in range(groups)]
            sampling, turns = Sampling(max_tokens=max_tokens), place.turns(max_turns)
            plan = Plan(groups, size[0] if size else 8, turns, seed, env, numbers, sampling)
            with tempfile.TemporaryDirectory() as spare:
                player = PolicyPlayer(
                    *(place, model, plan, work or Path(spare)),
                    names=(*POLICY_FORMS, *recipe),
                    layer=layer,
                    radius=radius,
                    dtype=dtype,
                    states=cast("Any", states),  # the player checks it
                )
                with screen.progress("batches") as bar:
                    found = player.gradients(batches, bar)
                with screen.progress("decisions") as bar:
                    decided = player.decisions(decisions, bar) if decisions else None
        except (ImportError, OSError, ValueError, TypeError) as error:
            screen.wrong_call(error)
        _print(policy_lines(found, decided), lambda: _print_policy(found, decided), as_json)
        return
    if env is not None or model is not None:
        screen.wrong_call("--env and --model belong together", "give both, or neither")
    from ascribe_lab.audit import ALL_WORLDS, FULL, FULL_FORMS, QUICK, QUICK_FORMS, scored_recipe
    from ascribe_lab.audit import audit as run
    from ascribe_lab.audit.report import json_lines

    if wrong := [name for name in world if name not in ALL_WORLDS]:
        screen.wrong_call(unknown("world", wrong[0], ALL_WORLDS))
    given = {
        "worlds": {name: ALL_WORLDS[name] for name in world},
        "sizes": tuple(size),
        "blocks": blocks,
        "paraphrase": paraphrase,
        "noise": noise,
        "blur": blur,
    }
    changes: dict[str, Any] = {k: v for k, v in given.items() if v not in (None, (), {})}
    chosen = replace(FULL if full else QUICK, seed=seed, plain=plain, **changes)
    if 8 not in chosen.sizes:  # policies learn at a group size that is scored
        chosen = replace(chosen, learning_size=chosen.sizes[0])
    names = (*(FULL_FORMS if full else QUICK_FORMS), *recipe)
    try:
        scored = {name: scored_recipe(name) for name in names}
        with screen.progress("audit") as bar:
            result = run(scored, chosen, processes=processes or os.cpu_count() or 1, progress=bar)
    except ValueError as error:  # of a recipe of the user's own
        screen.wrong_call(error)
    lines = list(json_lines(result, recipe[-1] if recipe else LEADER))
    _print(lines, lambda: _print_worlds(lines, result), as_json)


def _print(lines: Iterable[dict[str, Any]], tables: Callable[[], None], as_json: bool) -> None:
    """The lines as JSON, or the tables for people."""
    if not as_json:
        tables()
        return
    for line in lines:
        print(json.dumps(line))


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


def _print_worlds(lines: list[dict[str, Any]], result: "Audit") -> None:
    from ascribe_lab.audit.report import MINUS, PAIRED, AuditTables

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
    settings = result.settings
    footer = f"{counted(settings.blocks, 'block')} of {counted(settings.tasks, 'task')}"
    screen.out.print(Text(f"{footer}, {result.seconds:.0f} s.", style="dim"))


def _table(title: str, head: list[str], rows: list[list[str]]) -> Table:
    # Without lines between columns, so that it fits 80.
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for index, name in enumerate(head):
        justify: Literal["left", "right"] = "right" if index else "left"
        table.add_column(name.replace("_", "\n"), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
