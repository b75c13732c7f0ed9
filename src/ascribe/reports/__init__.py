"""The report: what happened, what separates won from lost, each session, two versions, training."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from ascribe import __version__
from ascribe.decisions import Decisions, find_decisions
from ascribe.decisions.changed import Changed, compare_files
from ascribe.estimators import DEFAULT, RECIPES, Recipe, as_recipe
from ascribe.estimators import recipe as recipe_of
from ascribe.estimators.situations import place
from ascribe.groups.events import read_calls
from ascribe.reports.answers import answer
from ascribe.reports.browse import browser
from ascribe.reports.card import card
from ascribe.reports.crediting import (
    Credited,
    RecipeComparison,
    calls_of,
    credit_batches,
    credit_versions,
    two_recipes,
)
from ascribe.reports.facts import Facts, gather
from ascribe.reports.figures import Figure, draw, draw_run
from ascribe.reports.reading import Batch, read_batches, rollouts_of
from ascribe.reports.reading import RefusedFileError as RefusedFileError
from ascribe.reports.runs import RunMetrics
from ascribe.reports.runs import read_run as read_run
from ascribe.reports.text import safe, visible
from ascribe.reports.verdict import ReportVerdict, judge
from ascribe.reports.write import write_figures, write_page, write_picture, write_tables
from ascribe.steps.balance import Balance
from ascribe.steps.errors import InputError
from ascribe.steps.files import Progress
from ascribe.steps.hints import option
from ascribe.steps.problems import TableError, one_line
from ascribe.steps.table import StepTable

if TYPE_CHECKING:
    from ascribe.sessions.reading import SessionOptions

__all__ = ["Picture", "report"]

SHUFFLES = 4
"""How often outcomes are shuffled to judge the credit by events that a page shows by default."""


@dataclass(frozen=True, repr=False)
class Picture:
    """A report, ready to be written.

    Attributes:
        decisions: what earned the reward: the decisions that sessions took differently.
        facts: the numbers.
        verdict: what they mean.
        comparison: of two recipes on the same steps, if two were given.
        figures: the charts.
        browser: the sessions of the page, compressed.
        answers: what happened, what separates won from lost, and so on, as plain values; see
            ``docs/report.schema.json``.
        notes: what files of conversations were read as.
        balances: what was seen, used and left out of each.
        run: the metrics of the run that wrote the files, if it is known.
        changed: what changed from an old version of the agent, if one was given.

    Example:
        >>> from ascribe.reports import picture
        >>> page = picture(table, "gigpo")
        >>> page
        Picture(5 rows by GiGPO())
        >>> page.verdict.headline
        'Too few trajectories for a verdict: 3.'
    """

    decisions: Decisions
    facts: Facts
    verdict: ReportVerdict
    comparison: RecipeComparison | None
    figures: tuple[Figure, ...]
    browser: dict[str, Any]
    answers: dict[str, Any]
    notes: tuple[str, ...] = ()
    run: RunMetrics | None = None
    balances: tuple[Balance, ...] = ()
    changed: Changed | None = None

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Every table, by name."""
        tables = {"verdict": self.verdict.rows(), **self.facts.tables}
        if self.comparison is not None:
            tables["signs"] = self.comparison.signs
        if self.run is not None:
            tables["run"] = self.run.rows
        return {name: safe(rows, sys.maxsize) for name, rows in tables.items()}

    def _repr_html_(self) -> str:
        """The picture, for notebooks: what happened, and what separates won from lost."""
        return card(self.answers)

    def __repr__(self) -> str:
        return f"Picture({self.facts.diagnosis.rows:,} rows by {self.facts.recipe!r})"

    def write(
        self,
        path: str | Path,
        *,
        figures: str | Path | None = None,
        tables: str | Path | None = None,
        png: str | Path | None = None,
    ) -> int:
        """Write the page; returns its size in bytes.

        Args:
            path: a file that ends in ``.html``.
            figures: a folder for every figure as SVG and PNG.
            tables: a folder for every table as CSV and Parquet.
            png: a file for the answers as one picture.

        Raises:
            ImportError: if figures or a picture are wanted without the extra ``report``.
            OSError: if a file cannot be written.
            ValueError: if the file has another suffix.
        """
        page = html_file(path)
        if figures is not None:
            write_figures(self.figures, figures)
        if tables is not None:
            write_tables(self.tables(), tables)
        if png is not None:
            write_picture(card(self.answers), png)
        return write_page(self._data(), page)  # last: an older page stays if the others fail

    def _data(self) -> dict[str, Any]:
        facts = self.facts
        return {
            **_frame(self.tables(), self.figures),
            "files": [one_line(file.name, 200) for file in facts.files],
            "notes": [visible(note) for note in (*self._left_out(), *self.notes)],
            "recipe": facts.recipe.name,
            "parameters": visible(repr(facts.recipe)),
            "answers": self.answers,
            "comparison": None
            if self.comparison is None
            else {
                "first": visible(self.comparison.first),
                "second": visible(self.comparison.second),
                "sentence": visible(self.comparison.sentence()),
            },
            "browser": self.browser,
        }

    def _left_out(self) -> Iterator[str]:
        """What is worth knowing of what was left out."""
        for each in self.balances:
            if each.left_out or any(each.details()):
                yield " ".join([each.sentence, *each.details()])


def _frame(tables: Mapping[str, list[dict[str, Any]]], figures: Sequence[Figure]) -> dict[str, Any]:
    """What every page holds."""
    return {
        "version": __version__,
        "tables": tables,
        "figures": {figure.name: asdict(figure) for figure in figures},
    }


def write_run(run: RunMetrics, name: str, path: str | Path) -> int:
    """Write a page on the metrics of a run that kept no rollouts; returns its size in bytes."""
    frame = _frame({"run": run.rows}, draw_run(run))
    return write_page({**frame, "notes": [], "files": [one_line(name, 200)]}, path)


def html_file(path: str | Path) -> Path:
    """The path of a page; ``ValueError`` if its suffix says that it is something else."""
    path = Path(path)
    if path.suffix not in (".html", ".htm"):
        raise InputError(f"a report is an HTML page: give {one_line(path)} the suffix .html")
    return path


Files: TypeAlias = str | Path | StepTable | Sequence[str | Path | StepTable]


def report(
    files: Files,
    out: str | Path = "report.html",
    recipe: Recipe | str | None = None,
    against: str | Path | StepTable | None = None,
    *,
    compare: Recipe | str | None = None,
    figures: str | Path | None = None,
    tables: str | Path | None = None,
    png: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    group_size: int | None = None,
    memory: int = 2 << 30,
    **sessions: Unpack["SessionOptions"],
) -> Picture:
    """Write an HTML page that shows what happened and why, like the command ``ascribe report``.

    Args:
        files: a table, a file of steps or sessions, or a list of them: iterations, in order.
        out: the page to write.
        recipe: the estimator, or its name; by default ``events`` where tasks have several attempts,
            the log has calls and over two fifths of the steps are alone in their state, and
            otherwise the default of ``ascribe.credit``.
        against: a table or file of an old version of the agent, to compare one new file with.
        compare: another estimator to compare with, or its name.
        figures: a folder for every figure as SVG and PNG.
        tables: a folder for every table as CSV and Parquet.
        png: a file for the answers as one picture.
        columns: what the files call a column of the format: ``{"reward": "score"}``.
        group_size: how many trajectories each group was meant to have, if known.
        memory: bytes to use; of a larger table, a sample of whole groups is read.
        **sessions: how to read sessions: ``form``, ``group``, ``reward`` and ``state``, as for
            ``ascribe.sessions.reading.import_files``.

    Returns:
        What the page shows: ``answers`` are plain values, and a notebook displays them.

    Raises:
        TableError: if a file is no step table, or nothing in it can be credited.
        OSError: if a file cannot be opened or written.
        ImportError: if figures or a picture are wanted without the extra ``report``.
        ValueError: if ``out`` is no ``.html`` file, there is no such recipe, it needs something
            that the files do not have, or the versions attempted no task in common.

    Example:
        >>> page = ascribe.report(table, "report.html")
        >>> page.answers["happened"]["sentence"].partition(" (")[0]
        '1 of 3 attempts at 1 task won: 33 %'
    """
    page = html_file(out)
    made = picture(
        files,
        recipe,
        against,
        compare=compare,
        columns=columns,
        group_size=group_size,
        memory=memory,
        **sessions,
    )
    made.write(page, figures=figures, tables=tables, png=png)
    return made


def picture(
    files: Files,
    recipe: Recipe | str | None = None,
    against: str | Path | StepTable | None = None,
    *,
    compare: Recipe | str | None = None,
    columns: Mapping[str, str] | None = None,
    group_size: int | None = None,
    memory: int = 2 << 30,
    run: RunMetrics | None = None,
    progress: Progress = lambda _: None,
    **sessions: Unpack["SessionOptions"],
) -> Picture:
    """What a report shows; arguments and errors of ``report``.

    Each file is a batch that is credited by itself, as a trainer credits an iteration. A file with
    a column ``iteration`` has a batch for each of its values. Two versions are credited together.

    Args:
        files: tables of steps, in files or in memory, or conversations, in the order of time.
        recipe: the estimator.
        against: an old version of the agent.
        compare: another estimator to compare with.
        columns: see ``report``.
        group_size: see ``report``.
        memory: see ``report``.
        run: the metrics of the run that wrote them, to be drawn too.
        progress: called with the share that is done.
        **sessions: see ``report``.
    """
    second = None if compare is None else as_recipe(compare)
    given = None if recipe is None else as_recipe(recipe)
    listed = [files] if isinstance(files, str | Path | StepTable) else [*files]
    if against is not None:
        if (
            isinstance(against, str | Path)
            and str(against) in RECIPES
            and not Path(against).exists()
        ):
            what = f"{against} is a recipe, and no file of an old version"
            raise InputError(what, hint=f"recipes are compared with {option('compare', against)}")
        if len(listed) != 1:
            raise InputError("an old version is compared with one new file", hint="name one file")
        listed = [against, *listed]
    paths = [file if isinstance(file, StepTable) else Path(file) for file in listed]
    needed = any(getattr(r, "fingerprint", "") == "given" for r in (given, second))
    reading: Any = {"columns": columns, "memory": memory, "whole": against is not None, **sessions}
    batches = read_batches(paths, fingerprints=needed, **reading)
    progress(0.3)
    first = _recipe_for(batches) if given is None else given
    changed = None
    if against is not None:
        changed = compare_files(*map(rollouts_of, batches), names=_version_names(batches))

    def credited_by(one: Recipe) -> Credited:
        if changed is not None:
            return credit_versions(batches, changed, one, group_size)
        return credit_batches(batches, one, group_size)

    credited = credited_by(first)
    progress(0.5)
    sources = tuple(dict.fromkeys(batch.path for batch in batches))
    flags: Any = {"won": credited.won, "rewritten": credited.rewritten}
    found = find_decisions(credited.table, **flags) if changed is None else changed.found
    facts = gather(credited, found, sources, batches[0].arguments if len(sources) == 1 else ())
    progress(0.8)
    other = None if second is None else credited_by(second)
    comparison = None if other is None else two_recipes(credited, other)
    figures = (*draw(facts), *(() if run is None else draw_run(run)))
    calls = calls_of(credited, batches)
    data = browser(credited, batches, calls, found, other)
    progress(1.0)
    balances = {id(each): each for batch in batches if (each := batch.balance) is not None}
    notes = [batch.note for batch in batches if batch.note]
    notes += credited.credit.notes
    if other is not None and second is not None:
        notes += [f"{second.name}: {note}" for note in other.credit.notes]
    left_out, verdict = tuple(balances.values()), judge(facts)
    training = {name: getattr(verdict, name) for name in ("headline", "advice")}
    training |= {"situation": list(verdict.situation), "findings": verdict.rows()}
    training["recipe"] = f"This page credits by {first.name}{_CHOSEN * (given is None)}."
    seen = [each.as_dict() for each in left_out]
    told = answer(
        credited, found, batches, calls, balances=seen, training=training, changed=changed
    )
    shown = (comparison, figures, data, told, tuple(dict.fromkeys(notes)), run, left_out, changed)
    return Picture(found, facts, verdict, *shown)


ALONE = 0.4
"""With a larger share of steps alone in their state, calls are credited by events. In logs whose
decisive steps are known it is .48 and more, and events find them; in games it is about .05."""
_CHOSEN = ", which was chosen because tasks have several attempts and by how often states recur"


def _recipe_for(batches: Sequence[Batch]) -> Recipe:
    """The recipe if none is named, by the largest batch."""
    table = max((batch.table for batch in batches), key=len)
    try:
        placed = place(table)
    except TableError:
        return as_recipe(DEFAULT)  # which says what is wrong
    by_events = placed.rollouts > 1 and placed.alone > ALONE and read_calls(table).call.size > 0
    return recipe_of("events", shuffles=SHUFFLES) if by_events else as_recipe(DEFAULT)


def _version_names(batches: Sequence[Batch]) -> tuple[str, str]:
    """What the page calls the old and the new version."""
    old, new = (one_line(batch.path.stem, 60) for batch in batches)
    return ("old", "new") if old == new else (f"old: {old}", f"new: {new}")
