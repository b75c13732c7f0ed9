"""The report: where the credit went, and how a run went, on one page."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ascribe import __version__
from ascribe.decisions import Decisions, decisions
from ascribe.estimators import Recipe
from ascribe.report.browse import browser, packed
from ascribe.report.compare import RecipeComparison, two_recipes
from ascribe.report.crediting import credit_batches
from ascribe.report.facts import Facts, gather
from ascribe.report.figures import Figure, draw, draw_run
from ascribe.report.reading import RefusedFileError, read_batches
from ascribe.report.runs import RunMetrics, read_run
from ascribe.report.text import safe, visible
from ascribe.report.verdict import ReportVerdict, judge
from ascribe.report.write import COLOURS, theme, write_figures, write_page, write_tables
from ascribe.steps.files import Progress
from ascribe.steps.problems import one_line
from ascribe.steps.table import StepTable

if TYPE_CHECKING:
    from ascribe.sessions.formats import SessionOptions

__all__ = [
    "Facts",
    "Figure",
    "Picture",
    "RecipeComparison",
    "RefusedFileError",
    "ReportVerdict",
    "RunMetrics",
    "picture",
    "read_run",
    "write_run",
]


@dataclass(frozen=True)
class Picture:
    """A report, ready to be written.

    Attributes:
        decisions: what earned the reward: the decisions that sessions took differently.
        facts: the numbers.
        verdict: what they mean.
        comparison: of two recipes on the same steps, if two were given.
        figures: the charts.
        browser: data of the trajectory browser.
        notes: what files of conversations were read as.
        run: the metrics of the run that wrote the files, if it is known.
    """

    decisions: Decisions
    facts: Facts
    verdict: ReportVerdict
    comparison: RecipeComparison | None
    figures: tuple[Figure, ...]
    browser: dict[str, Any]
    notes: tuple[str, ...] = ()
    run: RunMetrics | None = None

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Every table, by name."""
        tables = {"verdict": self.verdict.rows(), **self.facts.tables}
        if self.comparison is not None:
            tables |= {"signs": self.comparison.signs, "changed": self.comparison.changed}
        if self.run is not None:
            tables["run"] = self.run.rows
        return {name: safe(rows, sys.maxsize) for name, rows in tables.items()}

    def write(self, path: str | Path) -> int:
        """Write the page; returns its size in bytes.

        Raises:
            ImportError: without the extra ``report``.
            OSError: if the file cannot be written.
        """
        return write_page(self._data(), path)

    def write_figures(self, folder: str | Path) -> list[Path]:
        """Write every figure as SVG and PNG."""
        return write_figures(self.figures, folder)

    def write_tables(self, folder: str | Path) -> list[Path]:
        """Write every table as CSV and Parquet."""
        return write_tables(self.tables(), folder)

    def _data(self) -> dict[str, Any]:
        facts = self.facts
        return {
            **_frame(self.tables(), self.figures),
            "files": [one_line(file.name, 200) for file in facts.files],
            "notes": [visible(note) for note in self.notes],
            "recipe": facts.recipe.name,
            "parameters": visible(repr(facts.recipe)),
            "rows": facts.diagnosis.rows,
            "trajectories": facts.diagnosis.trajectories,
            "groups": facts.task_groups,
            "success": facts.everything["success"],
            "won": facts.success_by_column,
            "verdict": {
                "headline": self.verdict.headline,
                "advice": self.verdict.advice,
                "situation": self.verdict.situation,
                "findings": safe(self.verdict.rows(), sys.maxsize),
            },
            "comparison": None
            if self.comparison is None
            else {
                "first": visible(self.comparison.first),
                "second": visible(self.comparison.second),
                "sentence": visible(self.comparison.sentence()),
            },
            "browser": packed(self.browser),
        }


def _frame(tables: Mapping[str, list[dict[str, Any]]], figures: Sequence[Figure]) -> dict[str, Any]:
    """What every page holds."""
    return {
        "version": __version__,
        "tables": tables,
        "figures": {figure.name: asdict(figure) for figure in figures},
        "themes": {name: theme(name) for name in COLOURS},
    }


def write_run(run: RunMetrics, name: str, path: str | Path) -> int:
    """Write a page on the metrics of a run that kept no rollouts; returns its size in bytes."""
    frame = _frame({"run": run.rows}, draw_run(run))
    return write_page({**frame, "notes": [], "files": [one_line(name, 200)]}, path)


def picture(
    files: str | Path | StepTable | Sequence[str | Path | StepTable],
    recipe: Recipe,
    against: Recipe | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    group_size: int | None = None,
    memory: int = 2 << 30,
    run: RunMetrics | None = None,
    progress: Progress = lambda _: None,
    **sessions: Unpack["SessionOptions"],
) -> Picture:
    """A report on rollouts.

    Each file is a batch that is credited by itself, as a trainer credits an iteration. A file with
    a column ``iteration`` has a batch for each of its values.

    Args:
        files: tables of steps, in files or in memory, or conversations, in the order of time.
        recipe: the estimator.
        against: another estimator to compare with.
        columns: what the files call a column of the format: ``{"reward": "score"}``.
        group_size: how many trajectories each group was meant to have, if known.
        memory: bytes to use; of a larger table, a sample of whole groups is read.
        run: the metrics of the run that wrote them, to be drawn too.
        progress: called with the share that is done.
        **sessions: how to read sessions; arguments of ``ascribe.sessions.formats.import_files``.

    Raises:
        RefusedFileError: if a file is no step table, or nothing in it can be credited.
        OSError: if a file cannot be opened.
        ValueError: if a recipe needs something that the files do not have.
    """
    if isinstance(files, str | Path | StepTable):
        files = [files]
    paths = [file if isinstance(file, StepTable) else Path(file) for file in files]
    needed = any(getattr(r, "fingerprint", "") == "given" for r in (recipe, against))
    batches = read_batches(paths, fingerprints=needed, columns=columns, memory=memory, **sessions)
    progress(0.3)
    credited = credit_batches(batches, recipe, group_size)
    progress(0.5)
    sources = tuple(dict.fromkeys(batch.path for batch in batches))
    found = decisions(credited.table, won=credited.won, rewritten=credited.rewritten)
    facts = gather(credited, found, sources, batches[0].arguments if len(sources) == 1 else ())
    progress(0.8)
    other = None if against is None else credit_batches(batches, against, group_size)
    comparison = None if other is None else two_recipes(credited, other)
    figures = (*draw(facts), *(() if run is None else draw_run(run)))
    data = browser(credited, batches, found, other)
    progress(1.0)
    notes = [batch.note for batch in batches if batch.note]
    notes += credited.credit.notes
    if other is not None and against is not None:
        notes += [f"{against.name}: {note}" for note in other.credit.notes]
    all_notes = tuple(dict.fromkeys(notes))
    return Picture(found, facts, judge(facts), comparison, figures, data, all_notes, run)
