"""The pages about TRL: their examples run, and every name that is logged is explained."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("trl", reason="needs the extra trl")
pytest.importorskip("minecraft_data", reason="needs the extra textcraft")

from ascribe.cli import app
from ascribe.estimators import DEFAULT
from ascribe.steps.files import read
from tests.engines import trl_toys as toys
from tests.engines.explained import LOGGED, explained

pytestmark = [pytest.mark.engine, toys.QUIET]

DOCS = Path(__file__).parents[2] / "docs"
SCREEN, PAGE = (
    (DOCS / f"engines/{name}.md").read_text(encoding="utf-8") for name in ("trl", "trl_reference")
)
SMALLER = {
    "models/Qwen2.5-1.5B-Instruct": "model",
    "max_steps=100": "max_steps=1, use_cpu=True, bf16=False, report_to='none'",
    "generation_batch_size=64": "generation_batch_size=8",
    "per_device_train_batch_size=8": "per_device_train_batch_size=1",
    "num_generations=8": "num_generations=4",
    "max_completion_length=256": "max_completion_length=4",
    "learning_rate=1e-6": "learning_rate=1e-3, disable_tqdm=True, logging_steps=1",
    "fingerprints=-12": "fingerprints=-1",
    "workers=4": "workers=1",
    "max_turns=15": "max_turns=2",
}


def code(page: str) -> list[str]:
    return re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


CODE = code(PAGE)
TUTORIAL = CODE[-1]
OPTIONAL = dict.fromkeys(re.findall(r"^    .*# new, optional.*\n", TUTORIAL, re.MULTILINE), "")
TWO_LINES = {
    '"models/Qwen3-0.6B"': '"model", processing_class=tokenizer',
    "max_steps=100, num_generations=8, max_completion_length=512": (
        "max_steps=3, num_generations=4, max_completion_length=160, per_device_train_batch_size=8, "
        "use_cpu=True, bf16=False, report_to='none', logging_steps=1, disable_tqdm=True"
    ),
}


def run(code: str, changes: dict[str, str], folder: Path, **names: Any) -> Any:
    """The trainer of an example, after its run, with a tiny model and few episodes."""
    for large, small in changes.items():
        assert large in code
        code = code.replace(large, small)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(compile(code, "page", "exec"), names)
    return names["trainer"]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("page")
    model = toys.tiny()
    model.config.max_position_embeddings = 4096  # its tokens are hardly more than bytes
    model.save_pretrained(folder / "model")
    toys.tokenizer().save_pretrained(folder / "model")
    return run(CODE[1], SMALLER, folder)


STOCK = OPTIONAL | {
    "from ascribe.engines.trl import AscribeTrainer": "from trl import GRPOTrainer",
    "trainer = AscribeTrainer(": "trainer = GRPOTrainer(",
    '    recipe="gigpo",  # new\n': "",
}
GRPO = OPTIONAL | {
    "from ascribe.engines.trl import AscribeTrainer": (
        "from ascribe.engines.trl import AscribeTrainer\nfrom ascribe import recipe"
    ),
    'recipe="gigpo",': 'recipe=recipe("grpo", std_epsilon=1e-4),',
}


def test_the_page_shows_lines_of_the_script() -> None:
    assert len(OPTIONAL) == 2
    # The kept run is one with gigpo; the page names the default.
    script = TUTORIAL.replace('recipe="gigpo"', f'recipe="{DEFAULT}"').splitlines()
    shown = [line for line in code(SCREEN)[0].splitlines() if not line.startswith("    #")]
    assert set(shown) <= set(script)
    assert sum("# new" in line or "# was" in line for line in shown) == 2


def test_two_lines_of_a_script_change(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The script: TRL's own loop with an environment, against a plain GRPOTrainer."""
    from tests.engines.trl_tools import tool_model

    model, tokenizer = tool_model(tmp_path_factory)
    (tmp_path / "model").symlink_to(model)
    batches: dict[str, list[Any]] = {}
    watched = {"trainer.train()\n": "keep(trainer)\ntrainer.train()\n"}
    for name, changes in (("trl", STOCK), ("grpo", GRPO), ("gigpo", {})):
        kept = batches[name] = []

        def keep(trainer: Any, kept: list[Any] = kept) -> None:
            score = trainer._generate_and_score_completions
            trainer._generate_and_score_completions = lambda inputs: (
                kept.append(score(inputs)) or kept[-1]
            )

        changed = changes | TWO_LINES | watched
        trainer = run(TUTORIAL, changed, tmp_path, tokenizer=tokenizer, keep=keep)
        assert trainer.state.global_step == 3
        assert min(toys.logged(trainer, "tools/call_frequency")) > 0.5
    furthest = 0.0
    for theirs, ours in zip(batches["trl"], batches["grpo"], strict=True):
        np.testing.assert_array_equal(ours["completion_ids"], theirs["completion_ids"])
        mask = (theirs["completion_mask"] * theirs["tool_mask"]).numpy()
        expected = theirs["advantages"].numpy()[:, None] * mask
        furthest = max(furthest, np.abs(ours["advantages"].numpy() - expected).max())
        assert np.abs(expected).max() > 0.1
    print(f"grpo: at most {furthest:.1e} from TRL's own advantages in 3 steps")
    assert furthest <= 1e-6
    furthest = 0.0
    for number, batch in enumerate(batches["gigpo"]):
        file, out = (
            tmp_path / f"steps/rollouts_{number:05d}.parquet",
            tmp_path / f"{number}.parquet",
        )
        command = ["credit", str(file), "--recipe", "gigpo", "--out", str(out)]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        credit = read(out).credit.column("advantage").fill_null(0.0).to_numpy()
        mask = (batch["completion_mask"] * batch["tool_mask"]).numpy()
        starts = (mask & ~np.pad(mask, ((0, 0), (1, 0)))[:, :-1]).astype(bool)
        difference = batch["advantages"].numpy()[starts] - credit
        furthest = max(furthest, np.abs(difference).max())
    print(f"gigpo: at most {furthest:.1e} from ascribe credit on the dump in 3 steps")
    assert furthest <= 1e-6


def test_one_rollout_per_task(tmp_path: Path) -> None:
    """With what the script has by then; the credit is in test_trl_memory.py."""
    from ascribe import recipe
    from ascribe.engines.trl import AscribeTrainer

    given = {"model": toys.tiny(), "reward_funcs": toys.won, "train_dataset": toys.prompts(8)}
    given |= {"args": toys.config(tmp_path), "rollout": toys.play, "tokenizer": toys.tokenizer()}
    more = {"recipe=method": "recipe=method, processing_class=tokenizer, rollout_func=rollout"}
    made = run(CODE[0], more, tmp_path, recipe=recipe, AscribeTrainer=AscribeTrainer, **given)
    made.train()
    assert made.num_generations == 1
    assert toys.logged(made, "ascribe/credit/memory_share") == [0]


def test_the_example_runs(trainer: Any) -> None:
    folder = Path(trainer.args.output_dir)
    assert trainer.state.global_step == 1
    assert toys.logged(trainer, "ascribe/episodes") == [8]
    assert not folder.is_absolute()
    assert all(len(code.splitlines()) <= 50 for code in CODE)


def test_the_example_makes_one_update_for_each_iteration(trainer: Any) -> None:
    """Episodes and rows of a pass were both divided by 8, so there are as many parts as before."""
    assert trainer.args.steps_per_generation == 8
    assert trainer._steps_of_iteration == trainer.args.gradient_accumulation_steps


def test_every_name_is_explained(trainer: Any) -> None:
    told = {name for entry in trainer.state.log_history for name in entry}
    ours = {name for name in told if name.startswith("ascribe/")}
    assert len(ours) > 20
    assert [name for name in ours if explained(name) is None] == []
    others = ("(verl)", "(TRL's loops)")
    ours_too = {name: said for name, said in LOGGED.items() if not said.endswith(others)}
    common = {f"ascribe/{name}" for name in ours_too if "/" not in name}
    assert common <= told


def test_tensorboard_and_w_and_b_put_a_word_in_front() -> None:
    from transformers.integrations.integration_utils import rewrite_logs

    assert rewrite_logs({"ascribe/success": 1.0}) == {"train/ascribe/success": 1.0}
    assert rewrite_logs({"eval_ascribe/success": 1.0}) == {"eval/ascribe/success": 1.0}
    assert "`train/ascribe/success`" in PAGE
