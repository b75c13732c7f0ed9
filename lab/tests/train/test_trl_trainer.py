"""The trainer: what it trains on is the recipe's credit, and its update is TRL's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("trl", reason="needs the extra trl")

from ascribe.cli import app
from ascribe.estimators import DEFAULT, recipe
from ascribe.steps.files import read
from lab.tests.train import trl_games as toys
from tests.engines.by_hand import against_memory

pytestmark = [pytest.mark.engine, toys.QUIET]

NIGHTLY = pytest.mark.nightly
CASES = [("gigpo", "step"), ("hgpo", "trajectory"), ("sbc", "step"), ("bipace_q", "trajectory")]
"""Recipes that compare states, histories and fingerprints, with their carried state, by layout."""
OTHERS = [("grpo", "step"), ("bigpo", "step"), ("bipace_q", "step"), ("grpo", "trajectory")]
OTHERS += [("gigpo", "trajectory"), ("sbc", "trajectory"), ("hgpo", "step")]


def recorded(trainer: Any) -> list[dict[str, Any]]:
    """Everything that the trainer's loss is given from now on, one dictionary for each row."""
    rows: list[dict[str, Any]] = []
    compute = trainer._compute_loss

    def record(model: Any, inputs: dict[str, Any]) -> Any:
        for place in range(len(inputs["prompt_ids"])):
            one = {name: value[place] for name, value in inputs.items() if value.ndim}
            count = int(one["completion_mask"].sum())
            wrote = one.get("tool_mask", one["completion_mask"])[:count].bool().tolist()
            each = one["advantages"].expand(one["completion_ids"].shape[0])[:count].tolist()
            rows.append(
                {
                    "prompt": tuple(one["prompt_ids"][one["prompt_mask"].bool()].tolist()),
                    "completion": tuple(one["completion_ids"][:count].tolist()),
                    "wrote": tuple(wrote),
                    "advantages": each,
                }
            )
        return compute(model, inputs)

    trainer._compute_loss = record
    return rows


def expected(file: Path, layout: str) -> list[dict[str, Any]]:
    """The rows that a dumped file says were trained on."""
    steps = read(file)
    told = steps.carried.to_pylist()
    if layout == "step":
        return [
            {
                "prompt": tuple(row["prompt_ids"]),
                "completion": tuple(row["response_ids"]),
                "wrote": (True,) * len(row["response_ids"]),
                "advantages": [row["trained_advantage"]] * len(row["response_ids"]),
            }
            for row in told
        ]
    rows = []
    names = np.array(steps.table.trajectory.texts())
    for name in dict.fromkeys(names.tolist()):
        mine = [told[n] for n in np.flatnonzero(names == name)]
        ids, wrote, values = list(mine[0]["prompt_ids"]), [], []
        for row in mine:
            new = row["prompt_ids"][len(ids) :]
            ids += new + row["response_ids"]
            wrote += [False] * len(new) + [True] * len(row["response_ids"])
            values += [0.0] * len(new)
            values += [row["trained_advantage"]] * len(row["response_ids"])
        first = len(mine[0]["prompt_ids"])
        rows.append(
            {
                "prompt": tuple(ids[:first]),
                "completion": tuple(ids[first:]),
                "wrote": tuple(wrote),
                "advantages": values,
            }
        )
    return rows


def same(given: list[dict[str, Any]], told: list[dict[str, Any]]) -> None:
    """The rows that teach something are the same, to 1e-6."""

    def ordered(rows: list[dict[str, Any]]) -> list[list[Any]]:
        return sorted(list(row.values()) for row in rows if any(row["advantages"]))

    ours, theirs = ordered(given), ordered(told)
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one[3], other[3], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "layout"), [*CASES, *(pytest.param(*each, marks=NIGHTLY) for each in OTHERS)]
)
def test_it_trains_on_what_the_recipe_says(name: str, layout: Any, tmp_path: Path) -> None:
    """Compared to 1e-6: the credit of the file, its column, and the tensors that the loss got."""
    trainer = toys.trainer(
        tmp_path,
        recipe=name,
        layout=layout,
        fingerprints=-1,
        dump_dir=tmp_path,
        args={"max_steps": 2},
    )
    given = recorded(trainer)
    trainer.train()
    files = sorted(tmp_path.glob("rollouts_*.parquet"))
    assert [file.name for file in files] == ["rollouts_00000.parquet", "rollouts_00001.parquet"]
    told: list[dict[str, Any]] = []
    for file in files:
        out = tmp_path / f"credit_{file.name}"
        equal = ["--set", "scale=equal"] if name == DEFAULT else []  # as trainers have it
        words = ["credit", str(file), "--recipe", name, *equal, "--out", str(out)]
        said = CliRunner().invoke(app, words, catch_exceptions=False)
        assert said.exit_code == 0
        again = read(out)
        want = np.array(again.credit.column("advantage").fill_null(0.0).to_pylist())
        trained = np.array(again.carried.column("trained_advantage").to_pylist())
        np.testing.assert_allclose(trained, want, rtol=0, atol=1e-6)
        assert np.abs(want).max() > 0.01
        assert (again.table.fingerprint is not None) == (name in ("bigpo", "bipace_q", "sbc"))
        told += expected(file, layout)
    same(given, told)


def test_one_rollout_of_each_task_is_compared_with_earlier_ones(tmp_path: Path) -> None:
    trainer = toys.trainer(
        tmp_path,
        recipe=recipe("returns", memory=0.8, gamma=0.9),
        tasks=(3, 5, 8, 13),
        dump_dir=tmp_path,
        args={"max_steps": 3, "num_generations": 1, "gradient_accumulation_steps": 1},
    )
    trainer.train()
    steps = [read(file) for file in sorted(tmp_path.glob("rollouts_*.parquet"))]
    tables = [each.table for each in steps]
    assert all({*table.task.texts()} == {"3", "5", "8", "13"} for table in tables)
    for each, by_hand in zip(steps, against_memory(tables, 0.8, 0.9), strict=True):
        np.testing.assert_allclose(each.carried["trained_advantage"], by_hand, atol=1e-12)
    assert by_hand.any()


def parameters(model: Any) -> Any:
    return np.concatenate([p.detach().flatten().numpy() for p in model.parameters()])


@pytest.mark.parametrize(
    ("loss_type", "updates"),
    [
        ("dapo", 1),
        ("grpo", 2),
        ("cispo", 2),
        ("dr_grpo", 2),
        pytest.param("dapo", 2, marks=NIGHTLY),
        pytest.param("grpo", 1, marks=NIGHTLY),
        pytest.param("sapo", 2, marks=NIGHTLY),
    ],
)
def test_with_one_turn_it_is_trl_s_own_update(
    loss_type: str, updates: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL is given the tokens and the returns of our episodes, and computes the rest itself."""
    from trl import GRPOTrainer

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    args = {"loss_type": loss_type, "num_iterations": updates, "max_steps": updates}
    args |= {"optim": "sgd", "learning_rate": 0.1}
    ours = toys.trainer(
        tmp_path,
        recipe=recipe("grpo", std_epsilon=1e-4),
        max_turns=1,
        dump_dir=tmp_path,
        args=args,
    )
    before = parameters(ours.model)
    ours.train()
    steps = read(tmp_path / "rollouts_00000.parquet")
    told = steps.carried.to_pylist()

    def replay(prompts: list[Any], _trainer: Any) -> dict[str, Any]:
        assert len(prompts) == len(told)
        return {
            "prompt_ids": [row["prompt_ids"] for row in told],
            "completion_ids": [row["response_ids"] for row in told],
            "logprobs": None,
            "earned": steps.table.reward.tolist(),
        }

    def reward(earned: list[float], **_: Any) -> list[float]:
        return earned

    from datasets import Dataset

    theirs = GRPOTrainer(
        toys.tiny(),
        reward_funcs=reward,
        args=toys.config(tmp_path, **args, shuffle_dataset=False),
        train_dataset=Dataset.from_list([{"prompt": "a"}, {"prompt": "b"}]),
        processing_class=toys.tokenizer(),
        rollout_func=replay,
    )
    kept: list[Any] = []
    score = theirs._generate_and_score_completions

    def keep(inputs: Any) -> Any:
        kept.append(score(inputs))
        return kept[-1]

    theirs._generate_and_score_completions = keep
    theirs.train()
    trained = [row["trained_advantage"] for row in told]
    np.testing.assert_allclose(trained, kept[0]["advantages"], rtol=0, atol=1e-6)
    moved = np.abs(parameters(theirs.model) - before).max()
    assert moved > 1e-3
    assert len({len(row["response_ids"]) for row in told}) > 1
    np.testing.assert_allclose(
        parameters(ours.model), parameters(theirs.model), rtol=0, atol=1e-6 + 1e-4 * moved
    )


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_the_number_of_passes_does_not_change_the_update(loss_type: str, tmp_path: Path) -> None:
    """Two ways to go over 8 episodes; rows that teach nothing are left out in both of them."""
    found = []
    for passes in (1, 8):
        args = {"loss_type": loss_type, "gradient_accumulation_steps": passes}
        args |= {"per_device_train_batch_size": 8 // passes, "optim": "sgd", "learning_rate": 0.1}
        trainer = toys.trainer(tmp_path, args=args, recipe="gigpo")
        trainer.train()
        found.append(parameters(trainer.model))
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-6)


def test_rows_that_teach_nothing_change_nothing(tmp_path: Path) -> None:
    """With a reference model every row takes part; with a weight of nearly 0 it does not matter."""
    found = {}
    folder = tmp_path / "model"
    toys.tiny().save_pretrained(folder)
    toys.tokenizer().save_pretrained(folder)
    for beta in (0.0, 1e-12):
        args = {"beta": beta, "optim": "sgd", "learning_rate": 0.1}
        args["model_init_kwargs"] = {"dtype": "float32"}
        trainer = toys.trainer(
            tmp_path, model=str(folder), recipe="bipace_q", fingerprints=0, args=args
        )
        trainer.train()
        found[beta] = parameters(trainer.model), toys.logged(trainer, "ascribe/rows")[0]
        assert ("kl" in trainer.state.log_history[0]) == (beta > 0)
    assert found[0.0][1] <= found[1e-12][1]
    np.testing.assert_allclose(found[0.0][0], found[1e-12][0], rtol=0, atol=1e-6)


def test_fingerprints_are_those_of_the_prompt_alone(tmp_path: Path) -> None:
    from ascribe_lab.calibrate.actor import actor

    for layout in ("step", "trajectory"):
        folder = tmp_path / layout
        model = toys.tiny()
        options = {"recipe": recipe("bigpo", radius=0.2), "fingerprints": 0, "dump_dir": folder}
        toys.trainer(
            tmp_path, model=model, layout=layout, args={"learning_rate": 0.0}, **options
        ).train()
        steps = read(folder / "rollouts_00000.parquet")
        texts = [toys.tokenizer().decode(row["prompt_ids"]) for row in steps.carried.to_pylist()]
        ids = [toys.tokenizer()(text)["input_ids"] for text in texts]
        plain = [
            number
            for number, row in enumerate(steps.carried.to_pylist())
            if ids[number] == row["prompt_ids"]
        ]
        assert len(plain) >= 8
        want = actor(np.array(texts, dtype=object), model.eval(), toys.tokenizer(), 0)
        assert steps.table.fingerprint is not None
        np.testing.assert_allclose(
            steps.table.fingerprint.astype(np.float32)[plain], want[plain], rtol=0, atol=2e-3
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "name"),
    [("trajectory", "bipace_q"), pytest.param("step", "gigpo", marks=NIGHTLY)],
)
def test_it_learns(layout: Any, name: str, tmp_path: Path) -> None:
    """A move is paid if its text holds an e: of three moves fewer than one at first, then most."""
    args = {"max_steps": 14, "learning_rate": 3e-3, "num_generations": 8}
    args |= {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    trainer = toys.trainer(
        tmp_path,
        setup=toys.hall(wish="e"),
        recipe=name,
        layout=layout,
        fingerprints=-1,
        stop=(),
        args=args,
    )
    trainer.train()
    returns = toys.logged(trainer, "ascribe/return")
    assert returns[0] < 1
    assert min(returns[-2:]) > 2


def test_with_the_defaults_of_trl(tmp_path: Path) -> None:
    """Mixed precision and gradient checkpointing, and two updates on the same rows."""
    args = {"bf16": True, "gradient_checkpointing": True, "num_iterations": 2, "max_steps": 2}
    trainer = toys.trainer(tmp_path, recipe="bipace_q", fingerprints=-1, args=args)
    before = parameters(trainer.model)
    trainer.train()
    assert np.isfinite(toys.logged(trainer, "loss")).all()
    assert np.abs(parameters(trainer.model) - before).max() > 1e-4


def test_what_is_logged(tmp_path: Path) -> None:
    trainer = toys.trainer(tmp_path, recipe="bipace_q", fingerprints=-1, args={"max_steps": 2})
    trainer.train()
    told = trainer.state.log_history[0]
    names = ["success", "return", "episodes", "turns", "invalid_share", "dropped_groups"]
    names += ["failed", "retries", "signal_share", "singleton_share", "rows", "rows_skipped"]
    names += ["rows_padded", "advantage_rms", "rms/episode", "rms/step", "credit/pace"]
    names += ["credit/leave_one_out", "credit/singleton", "success/even", "success/odd"]
    names += [f"seconds/{phase}" for phase in ("rollout", "logprobs", "credit", "update")]
    assert [name for name in names if f"ascribe/{name}" not in told] == []
    assert {"reward", "reward_std", "frac_reward_zero_std", "num_tokens", "entropy"} <= told.keys()
    rows = told["ascribe/rows"] + told["ascribe/rows_padded"]
    assert rows % trainer.args.steps_per_generation == 0
    assert told["ascribe/rows"] + told["ascribe/rows_skipped"] == 8 * told["ascribe/turns"]
    spent = sum(told[f"ascribe/seconds/{phase}"] for phase in ("rollout", "logprobs", "credit"))
    assert 0 < spent < told["step_time"]


def test_passes_without_rows_are_in_no_mean(tmp_path: Path) -> None:
    """Two iterations teach nothing; the third has four rows: 12 of 16 parts are padding alone."""
    found = []
    for parts in (1, 16):
        args = {"max_steps": 3, "learning_rate": 1e-12, "per_device_train_batch_size": 16 // parts}
        args["gradient_accumulation_steps"] = parts
        setup = toys.hall(wish="k", horizon=1)
        made = toys.trainer(tmp_path, setup=setup, recipe="grpo", stop=(), args=args)
        made.train()
        assert toys.logged(made, "ascribe/rows") == [0, 0, 4]
        assert toys.logged(made, "clip_ratio/low_mean") == [0]
        found.append(toys.logged(made, "entropy"))
    assert len(found[0]) == 1
    assert found[1] == pytest.approx(found[0], abs=1e-5)


def test_evaluation_plays_held_out_tasks(tmp_path: Path) -> None:
    args = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}
    args |= {"num_generations_eval": 2}
    plays: dict[str, Any] = {"tasks": [1, 2, 3], "eval_tasks": [40, 41, 42, 43]}
    plays |= {"states": "environment", "eval_temperature": 0.4}
    trainer = toys.trainer(tmp_path, **plays, dump_dir=tmp_path, args=args)
    assert trainer.eval_player.sampling.temperature == 0.4
    assert trainer.player.sampling.temperature == 1.0
    trainer.train()
    assert toys.logged(trainer, "eval_ascribe/episodes") == [8]
    assert 0 <= toys.logged(trainer, "eval_ascribe/success")[0] <= 1
    table = read(tmp_path / "rollouts_00000.parquet").table
    assert {state.split(",")[0] for state in table.state.values} < {"hall 1", "hall 2", "hall 3"}
    assert trainer.evaluate()["eval_ascribe/episodes"] == 8
    assert trainer.player.pool is None


@pytest.mark.parametrize("each", [1, 2])
def test_the_batches_of_an_evaluation_do_not_change_what_it_finds(
    each: int, tmp_path: Path
) -> None:
    found = []
    for size in (4, 8, 20):
        args = {"num_generations_eval": each, "per_device_eval_batch_size": size}
        made = toys.trainer(tmp_path, eval_tasks=range(10), args=args)
        for _ in range(2):  # the second counts anew
            told = made.evaluate()
            found.append({name: told[name] for name in told if "ascribe" in name or "rew" in name})
    assert found[0]["eval_ascribe/episodes"] == 10 * each
    assert 0 < found[0]["eval_ascribe/success"] < 1
    assert found == [found[-1]] * 6
    assert [name for name in told if "entropy" in name or "clip_ratio/" in name] == []


def test_adapters_are_trained(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="needs peft")
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    for beta in (0.0, 0.1):
        trainer = toys.trainer(
            tmp_path,
            recipe="bipace_q",
            fingerprints=-1,
            peft_config=lora,
            args={"max_steps": 2, "beta": beta, "num_iterations": 2},
        )
        before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        trainer.train()
        moved = {name for name, p in trainer.model.named_parameters() if not p.equal(before[name])}
        assert moved
        assert all("lora_" in name for name in moved)


def test_the_table_of_completions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pandas as pd

    for layout in ("step", "trajectory"):
        folder = tmp_path / layout
        toys.trainer(folder, layout=layout, args={"log_completions": True}).train()
        (file,) = (folder / "completions").iterdir()
        table = pd.read_parquet(file)
        assert {"prompt", "completion", "environment", "advantage"} < set(table.columns)
        assert len(table) == 8
        assert table["advantage"].abs().max() > 0
    assert "You are in room" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"max_steps": -1}, "give max_steps"),
        ({"loss_type": "bnpo"}, "use loss_type='dapo'"),
        ({"entropy_coef": 0.1}, "leave entropy_coef at 0"),
        ({"top_entropy_quantile": 0.2}, "leave top_entropy_quantile at 1"),
        ({"top_k": 5}, "leave top_k at 0"),
        ({"min_p": 0.1}, "leave min_p unset"),
        ({"repetition_penalty": 1.1}, "leave repetition_penalty at 1"),
        ({"generation_kwargs": {"num_beams": 2}}, "leave generation_kwargs unset"),
        ({"mask_truncated_completions": True}, "truncation='exclude'"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(
    wrong: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=why):
        toys.trainer(tmp_path, args=wrong)


def test_one_ratio_for_a_row_of_several_decisions_is_refused(tmp_path: Path) -> None:
    sequence = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
    toys.trainer(tmp_path, args=sequence)
    with pytest.raises(ValueError, match="importance_sampling_level is 'sequence': all tokens"):
        toys.trainer(tmp_path, args=sequence, layout="trajectory")


@pytest.mark.parametrize("more", [{"vllm_mode": "server"}, {"vllm_tensor_parallel_size": 2}])
def test_processes_that_would_wait_for_each_other_are_refused(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One vLLM for several processes needs all of them to ask for samples equally often."""
    from trl import GRPOConfig

    from ascribe_lab.train.trl.arguments import refuse_unsupported

    args = toys.config(tmp_path, use_vllm=True, **more)
    refuse_unsupported(args)
    monkeypatch.setattr(GRPOConfig, "world_size", 2)
    with pytest.raises(ValueError, match="wait for each other for ever: give each process a vLLM"):
        refuse_unsupported(args)


def test_private_names_that_only_episodes_need_are_checked_too(tmp_path: Path) -> None:
    from trl import GRPOTrainer

    from ascribe.engines.trl.trainer import HOOKS, check_trl
    from ascribe_lab.train.trl import episodes, policies

    made = toys.own_trainer(tmp_path, GRPOTrainer)
    used = toys.private_names(*(Path(str(each.__file__)) for each in (episodes, policies)))
    assert {name for name in used if hasattr(made, name)} - {*HOOKS} == {*episodes.EPISODE_HOOKS}
    assert used > set(episodes.VLLM_HOOKS)
    with pytest.raises(ImportError, match="lacks _iter_named_params"):
        check_trl(made, episodes.VLLM_HOOKS)


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="layout: there is no choice 'row'; there are: step"):
        toys.trainer(tmp_path, layout="row")


def test_without_a_layer_no_fingerprints_are_taken(tmp_path: Path) -> None:
    assert toys.trainer(tmp_path, recipe="bipace_q").layer is None
    assert toys.trainer(tmp_path, recipe=recipe("bipace_q", preset="ngram")).layer is None
    assert (
        toys.trainer(tmp_path, recipe=recipe("sbc", preset="exact"), fingerprints=1).layer is None
    )


def test_sharded_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ascribe.engines.trl import AscribeTrainer

    def sharded(trainer: Any) -> None:
        trainer.is_fsdp_enabled = True

    monkeypatch.setattr(AscribeTrainer, "_refuse_unsupported", sharded)
    with pytest.raises(ValueError, match="wait for each other for ever: use data parallel"):
        toys.trainer(tmp_path)


def test_an_agent_that_forgets_has_a_row_for_each_decision(tmp_path: Path) -> None:
    setup = toys.hall()
    made = toys.trainer(tmp_path, setup=setup, agent=setup.agent, layout="trajectory")
    made.train()
    (turns,) = toys.logged(made, "ascribe/turns")
    rows = toys.logged(made, "ascribe/rows") + toys.logged(made, "ascribe/rows_skipped")
    assert sum(rows) == 8 * turns > 8
