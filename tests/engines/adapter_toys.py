"""Adapters with faults that the contract must find, and the snippets of the pages."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.engines.adapters import ExampleEpisode
from ascribe.sessions import Spans, spread
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable
from examples.adapter import ListAdapter

PAGES = Path(__file__).parents[2] / "docs" / "engines"


def snippet(trainer: str, language: str = "py") -> str:
    """The code of a trainer's page."""
    page = (PAGES / f"{trainer}.md").read_text()
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(code)


def run_snippet(trainer: str, **names: Any) -> dict[str, Any]:
    """Run the code of a trainer's page, with these names; returns all names."""
    exec(compile(snippet(trainer), f"{trainer}.md", "exec"), names)
    return names


class OneStepAdapter(ListAdapter):
    """Takes a whole episode for one step."""

    def steps(self, batch: dict[str, Any]) -> tuple[StepTable, Spans]:
        return super().steps({**batch, "mask": [[1] * len(each) for each in batch["mask"]]})


class LostRewardAdapter(ListAdapter):
    def steps(self, batch: dict[str, Any]) -> tuple[StepTable, Spans]:
        table, spans = super().steps(batch)
        return replace(table, reward=np.where(table.step > 2, 0.0, table.reward)), spans


class ShiftedAdapter(ListAdapter):
    """Puts an advantage one token too late."""

    def put(self, batch: dict[str, Any], places: Spans, advantages: Floats) -> dict[str, Any]:
        tokens = spread(advantages, places)
        return {**batch, "advantages": [np.append(0.0, each[:-1]) for each in tokens]}


class OneGroupAdapter(ListAdapter):
    def steps(self, batch: dict[str, Any]) -> tuple[StepTable, Spans]:
        return super().steps({**batch, "group": ["all"] * len(batch["group"])})


class PositionAdapter(ListAdapter):
    """Groups neighbours in the batch."""

    def steps(self, batch: dict[str, Any]) -> tuple[StepTable, Spans]:
        return super().steps({**batch, "group": [i // 4 for i in range(len(batch["group"]))]})


class NoLimitsAdapter(ListAdapter):
    """Does not say which episodes a limit ended."""

    def steps(self, batch: dict[str, Any]) -> tuple[StepTable, Spans]:
        return super().steps({**batch, "truncated": None})


class FailedCountsAdapter(ListAdapter):
    """Takes a failed episode for one with the reward 0."""

    def example(self, episodes: Sequence[ExampleEpisode]) -> dict[str, Any]:
        return super().example(
            [replace(e, failed=False, reward=0.0) if e.failed else e for e in episodes]
        )

    def put(self, batch: dict[str, Any], places: Spans, advantages: Floats) -> dict[str, Any]:
        return super().put(batch, places, advantages)


class RaisingAdapter(ListAdapter):
    def put(self, batch: dict[str, Any], places: Spans, advantages: Floats) -> dict[str, Any]:
        raise KeyError("advantages")
