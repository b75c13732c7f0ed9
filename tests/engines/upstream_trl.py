"""Run by ``test_upstream.py`` on a patched copy of TRL: turns by its public names alone."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples/upstream"))

import against_stock as stock
import trl_trainer

from ascribe import recipe
from ascribe.steps.files import read, read_table


class Rooms(stock.Rooms):
    """The rooms of the benchmark, as the patch reads them."""

    @property
    def turn_info(self) -> dict[str, object]:
        """Before each turn."""
        return {"reward_so_far": self.reward_so_far, "state_key": self.state_key}


def test_turns_are_credited_as_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "Rooms", Rooms)
    kinds: Counter[str] = Counter()
    trained: list[np.ndarray] = []

    class Kept(trl_trainer.TurnTrainer):
        def compute_advantages(self, *given, **options):
            values = super().compute_advantages(*given, **options)
            mask = options["completion_mask"].numpy()
            starts = mask & ~np.pad(mask, ((0, 0), (1, 0)))[:, :-1]
            trained.append(values.numpy()[starts.astype(bool)])
            return values

    episodes = stock.trl(tmp_path, 2, Kept, recipe="gigpo", dump_dir=tmp_path)
    for episode in episodes:
        hand = [step[:2] for step in stock.by_hand(episode, kinds)]
        assert [step[:2] for step in episode.steps] == hand
    assert kinds["turns with several calls"]
    assert kinds["turns whose results were rolled back"]
    for number, values in enumerate(trained):
        path = tmp_path / f"rollouts_{number:05d}.parquet"
        credit = recipe("gigpo")(read_table(path))
        own = read(path).carried.column("trained_advantage").to_numpy()
        np.testing.assert_array_equal(own, credit.advantage)
        np.testing.assert_array_equal(values, credit.advantage.astype(np.float32))
