"""The script of the tutorial about TRL runs, with both trainers."""

from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra trl")
pytest.importorskip("matplotlib", reason="needs the extra figures of ascribe-lab")

import torch
from trl import GRPOTrainer

from ascribe.engines.trl import AscribeTrainer
from tests.engines import trl_toys as toys

pytestmark = [pytest.mark.engine, toys.QUIET]

SCRIPT = Path(__file__).parents[2] / "examples/trl_quickstart.py"


def test_both_trainers_play_and_the_picture_is_drawn(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    spec = spec_from_file_location("trl_quickstart", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    trained: list[Any] = []
    train = GRPOTrainer.train

    def keep(self: Any, *arguments: Any) -> Any:
        trained.append(self)
        return train(self, *arguments)

    monkeypatch.setattr(GRPOTrainer, "train", keep)
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))

    script.compare("curves.png", seeds=[0], iterations=2)

    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert [type(each) for each in trained] == [GRPOTrainer, AscribeTrainer]
    plain, credited = trained
    for each in trained:
        assert each.state.global_step == 2
        assert min(toys.logged(each, "tools/call_frequency")) > 1
    assert toys.logged(plain, "ascribe/signal_share") == []
    assert min(toys.logged(credited, "ascribe/signal_share")) > 0
    # Before the first update both have the same model and the same seed.
    first = [toys.logged(each, "reward")[0] for each in trained]
    assert 0 < first[0] == first[1] < 1
    assert "no difference can be told" in capsys.readouterr().out  # from a single seed
