"""``ascribe train --tiny``: every run of the papers as one that two cores can try."""

from pathlib import Path

import pytest

from ascribe_lab.envs import make
from ascribe_lab.train import tiny
from ascribe_lab.train.launch import check_config
from ascribe_lab.train.load import load_config
from ascribe_lab.train.tiny import tiny_config

pytest.importorskip("yaml", reason="needs the extra trl or verl")

PAPERS = Path(__file__).parents[3] / "examples" / "papers"


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The model is made by the nightly runs; here its folder is enough."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").touch()
    monkeypatch.setattr(tiny, "write_tiny_model", lambda _: folder)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("engine", ["trl", "verl"])
def test_every_run_has_a_tiny_form(engine: str) -> None:
    for path in sorted(PAPERS.rglob("[a-z]*.yaml")):
        config = load_config(path).config
        if config.model.lora is not None and engine == "verl":
            continue
        if path.stem.endswith("_ppo") and engine == "trl":  # it has no critic
            continue
        small = tiny_config(config, engine)
        check_config(small, engine)
        assert small.output.folder == f"{config.output.folder}_tiny"
        assert (small.update.iterations, small.rollout.groups) == (2, 2)
        assert small.rollout.size == min(config.rollout.size, 2)
        # What is tried is the method: the recipe, the loss and the schedule are those of the file.
        assert small.recipe == config.recipe
        assert (small.update.loss, small.update.ratio) == (config.update.loss, config.update.ratio)
        assert small.update.schedule == config.update.schedule
        assert not [name for name in small.engine.verl if "gpu" in name or "filter" in name]


def test_the_user_s_data_is_replaced() -> None:
    config = load_config(PAPERS / "ccpo" / "voting_ccpo.yaml").config
    small = tiny_config(config, "trl")
    options = small.environment.options["options"]
    assert options["judge"] == "number"
    assert len(Path(options["file"]).read_text().splitlines()) == 8
    assert small.held_out.options["options"]["file"] == options["file"]
    assert small.rollout.max_turns == config.rollout.max_turns  # a turn for each voter
    shop = load_config(PAPERS / "gigpo" / "webshop_1.5b_grpo.yaml").config
    assert tiny_config(shop, "verl").environment.options == {"win_reward": 10.0}


@pytest.mark.parametrize("name", ["tau2", "tau2_strict", "swe", "terminal"])
def test_pivots_are_made_up(name: str) -> None:
    """A turn at which the demonstrated response earns 1, and noise 0, by the file's verifier."""
    small = tiny_config(load_config(PAPERS / "pivotrl" / f"{name}.yaml").config, "trl")
    env = make("pivots", **small.environment.options, expert=True)
    for task in (0, 7):
        _, info = env.reset(seed=0, options={"task": task})
        assert env.step(info["expert_action"])[1] == 1.0
        env.reset(seed=0, options={"task": task})
        assert env.step("qqq")[1] == 0.0
