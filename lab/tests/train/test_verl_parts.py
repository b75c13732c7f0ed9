"""The parts of the plug-in, one by one, in this process; test_verl_run has them all together."""

import ast
import asyncio
import importlib
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ascribe.engines.crediting import HISTORY
from ascribe.estimators import DEFAULT, recipe
from ascribe_lab.models.policy import Request, Sampling
from ascribe_lab.rollout import Plan, Rollout, Setup, rollout
from ascribe_lab.rollout.episode import EpisodeFailure, FailedEpisode
from ascribe_lab.rollout.pools import FailureKind
from ascribe_lab.rollout.run import Clock
from ascribe_lab.train.episodes import EpisodeSpec
from ascribe_lab.train.verl.packing import FIELD, unpack
from lab.tests.train import verl_toys as toys
from lab.tests.train.trl_games import HALL

os.environ.setdefault("VERL_PLATFORM", "cpu")
pytestmark = [
    pytest.mark.engine,
    toys.NEEDS_VERL,
    pytest.mark.filterwarnings("ignore"),  # verl and what it loads warn of much
]


@pytest.fixture(autouse=True, scope="module")
def parts() -> None:
    """What the processes of a run load."""
    importlib.import_module("ascribe_lab.train.verl.plugin")
    importlib.import_module("ascribe.engines.verl.workers")
    importlib.import_module("ascribe_lab.train.verl.cpu.workers")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return toys.write_config(
        tmp_path / "run.yaml", tmp_path, environment__name=HALL, environment__options={}
    )


# The estimator.


def test_the_estimator_lays_the_credit_of_rows_on_their_tokens() -> None:
    import torch

    from ascribe.engines.verl.trainer import CREDIT, estimate
    from ascribe.sessions import Spans

    # The second row has two turns; verl has masked the first token of the last one since.
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 1]])
    row, start, end = np.array([0, 1, 1]), np.array([0, 0, 2]), np.array([2, 1, 4])
    turn, lengths, turns = np.array([0, 0, 1]), np.array([2, 4]), np.array([1, 2])
    spans = Spans(row, start, end, start, turn, lengths, turns)
    CREDIT.append((np.array([0.5, -2.0, 3.0]), None, spans))
    advantages, returns = estimate(torch.zeros(2, 4), mask, index=["a", "b"])
    assert advantages.tolist() == returns.tolist() == [[0.5, 0.5, 0, 0], [-2, 0, 0, 3]]
    with pytest.raises(RuntimeError, match=r"python -m ascribe\.engines\.verl\.main_ppo"):
        estimate(torch.zeros(2, 3), mask)


def test_verl_knows_the_names() -> None:
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    from verl.trainer.ppo.v1 import get_trainer_cls

    from ascribe.engines.verl import trainer
    from ascribe_lab.train.verl import episode_trainer

    assert get_adv_estimator_fn("ascribe") is trainer.estimate
    modes = {
        "ascribe_sync": trainer.SyncTrainer,
        "ascribe_colocate_async": trainer.ColocateAsyncTrainer,
        "ascribe_separate_async": trainer.SeparateAsyncTrainer,
        "ascribe_lab_sync": episode_trainer.EpisodeSyncTrainer,
        "ascribe_lab_colocate_async": episode_trainer.EpisodeColocateAsyncTrainer,
        "ascribe_lab_separate_async": episode_trainer.EpisodeSeparateAsyncTrainer,
    }
    for name, made in modes.items():
        assert get_trainer_cls(name) is made
        # Each stands over verl's trainer of that mode.
        assert issubclass(made, get_trainer_cls(made.mode))


def test_every_private_name_of_verl_is_listed_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What our modules read from objects that are not theirs, define over verl's, or wrap."""
    from verl.trainer.ppo.v1 import PPOTrainer

    from ascribe.engines.verl import engine, names, separate, trainer
    from ascribe_lab.train.verl import episode_trainer, plugin
    from ascribe_lab.train.verl.cpu import engine as cpu
    from ascribe_lab.train.verl.cpu import vllm

    def parsed(module: Any) -> list[ast.AST]:
        files = Path(module.__file__).parent.rglob("*.py")
        return [node for path in files for node in ast.walk(ast.parse(path.read_text()))]

    def attributes(nodes: list[ast.AST], context: type) -> set[str]:
        found = [node for node in nodes if isinstance(node, ast.Attribute)]
        return {node.attr for node in found if isinstance(node.ctx, context)}

    def used(nodes: list[ast.AST], *overridden: tuple[Any, Any]) -> set[str]:
        names = attributes(nodes, ast.Load) - own
        for ours, theirs in overridden:
            names |= {name for name in vars(ours) if hasattr(theirs, name)} - {"_abc_impl"}
        return {name for name in names if name.startswith("_") and name[1] != "_"}

    def listed(private: dict[str, str]) -> set[str]:
        return set(" ".join(private.values()).split())

    names.check_verl()
    library, lab = parsed(names), parsed(plugin)
    every = library + lab
    own = {node.name for node in every if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= attributes(every, ast.Store)
    found = used(
        library,
        (trainer.CreditMixin, PPOTrainer),
        (separate.SeparateMixin, separate.SeparateRayPPOTrainer),
        (engine.FingerprintEngine, engine.FSDPEngineWithLMHead),
    )
    assert found | {"_call_tool", "_handle_generating_state"} == listed(names.PRIVATE)
    assert len(listed(names.PRIVATE)) == 7
    besides = used(
        lab,
        (episode_trainer.EpisodeMixin, PPOTrainer),
        (cpu.CpuValueEngine, cpu.FSDPEngineWithValueHead),
    )
    besides |= {"_get_worker_extension_cls"}
    assert besides - listed(names.PRIVATE) == listed(vllm.PRIVATE)
    monkeypatch.delattr(PPOTrainer, "_get_required_batch_multiple")
    with pytest.raises(ImportError, match=r"no PPOTrainer\._get_required_batch_multiple.*0\.9\.1"):
        trainer.SyncTrainer(loop_config(recipe="grpo"))


def test_a_release_that_was_not_tested_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ascribe.engines.verl import names

    monkeypatch.setattr(names, "version", lambda _: "0.9.7")
    names.check_verl()
    assert "verl 0.9.7 was not tested with Ascribe (0.9.0 and 0.9.1 were)" in caplog.text


def test_the_page_names_the_list_of_private_names() -> None:
    page = (Path(__file__).parents[3] / "docs" / "engines" / "verl.md").read_text()
    assert "`ascribe.engines.verl.names`" in page


def test_what_a_recipe_carries_is_in_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run of ``ccpo`` begins with the statistics of the checkpoint's step."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import PPOTrainer

    from ascribe.engines.verl.trainer import SyncTrainer

    def trainer(step: int, history: Any = None) -> Any:
        made = SyncTrainer.__new__(SyncTrainer)
        made.steps = SimpleNamespace(recipe=recipe("ccpo"))
        keys = {"default_local_dir": str(tmp_path), "resume_mode": "auto"}
        made.config = OmegaConf.create({"trainer": keys})
        made.global_steps, made._history = step, history
        return made

    for name in ("fit", "_save_checkpoint"):
        for owner in SyncTrainer.__mro__:
            if name in vars(owner) and issubclass(PPOTrainer, owner):
                monkeypatch.setattr(owner, name, lambda *_: None)
    carried = {"samples": 8, "mean": 0.1 + 0.2}
    trainer(2, carried)._save_checkpoint()  # when, says verl
    assert [path.parent.name for path in tmp_path.rglob(HISTORY)] == ["global_step_2"]
    resumed = trainer(2)
    resumed.fit(None)
    assert resumed._history == carried
    with pytest.raises(ValueError, match=rf"global_step_4 holds no {HISTORY}"):
        trainer(4).fit(None)


def test_a_batch_has_room_for_whole_minibatches() -> None:
    from omegaconf import OmegaConf

    from ascribe_lab.train.verl.episode_trainer import EpisodeSyncTrainer

    made = EpisodeSyncTrainer.__new__(EpisodeSyncTrainer)
    made.config = OmegaConf.create({"actor_rollout_ref": {"actor": {"use_dynamic_bsz": True}}})
    made.steps = SimpleNamespace(minibatches=3, minibatch_rows=None)
    assert made._get_required_batch_multiple(4) == 12
    made.steps = SimpleNamespace(minibatches=1, minibatch_rows=256)
    assert [made._get_required_batch_multiple(ranks) for ranks in (1, 4, 3)] == [256, 256, 258]


def test_the_engine_is_ours() -> None:
    from verl.workers.engine import EngineRegistry

    from ascribe.engines.verl.engine import FingerprintEngine

    assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is FingerprintEngine


# Tasks.


def test_tasks_are_the_same_whoever_asks(config: Path) -> None:
    from ascribe_lab.train.verl.tasks import TaskDataset, spec_of

    tasks = TaskDataset(str(config), tokenizer=None, config=None)
    assert len(tasks) > 10**9
    assert tasks[7] == TaskDataset([str(config)])[7]
    row = tasks[3]
    spec = spec_of(row["episode"], 2)
    assert (spec.group, spec.member) == ("train/3", 2)
    assert spec.task in toys.TASKS
    assert row["agent_name"] == "ascribe"


@pytest.mark.parametrize("files", ["train.parquet", ["a.yaml", "b.yaml"], []])
def test_train_files_must_be_a_run(files: Any) -> None:
    from ascribe_lab.train.verl.tasks import TaskDataset

    with pytest.raises(ValueError, match="must be the YAML file of an Ascribe run"):
        TaskDataset(files)


# What cannot be.


def verl_config(config: Path, **changes: Any) -> Any:
    """Verl's own configuration, as far as it is looked at."""
    from omegaconf import OmegaConf

    made = OmegaConf.create(
        {
            "algorithm": {"adv_estimator": "ascribe", "use_kl_in_reward": False},
            "actor_rollout_ref": {"rollout": {"n": 4, "max_model_len": 320}},
            "data": {"train_files": str(config), "train_batch_size": 2, "shuffle": False},
            "trainer": {"test_freq": -1, "val_before_train": False},
        }
    )
    for name, value in changes.items():
        OmegaConf.update(made, name.replace("__", "."), value, force_add=True)
    return made


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm__adv_estimator": "grpo"}, "set it to ascribe"),
        ({"algorithm__use_kl_in_reward": True}, "use actor.use_kl_loss"),
        ({"actor_rollout_ref__rollout__n": 8}, "rollout.size of the run is 4"),
        ({"data__train_batch_size": 16}, "rollout.groups of the run is 2"),
        ({"data__shuffle": True}, "set it to False"),
        ({"trainer__test_freq": 5}, "name the held-out tasks"),
        ({"trainer__val_before_train": True}, "name the held-out tasks"),
        ({"actor_rollout_ref__rollout__max_model_len": None}, "must be given"),
        ({"critic__enable": True}, "would learn for nothing"),
    ],
)
def test_what_would_be_wrong_is_refused(config: Path, changes: dict[str, Any], said: str) -> None:
    from ascribe_lab.train.verl.episodes import refuse_unsupported
    from ascribe_lab.train.verl.tasks import read_run

    right = verl_config(config)
    refuse_unsupported(right, read_run(right.data.train_files))
    with pytest.raises(ValueError, match=said):
        refuse_unsupported(verl_config(config, **changes), read_run(right.data.train_files))


def test_held_out_tasks_have_rows_and_an_environment_of_their_own(tmp_path: Path) -> None:
    from ascribe_lab.train.verl.tasks import TaskDataset, read_run

    path = toys.write_config(
        tmp_path / "run.yaml",
        tmp_path,
        environment__name=HALL,
        environment__options={"horizon": 2},
        evaluation={"tasks": [7, 9], "size": 2, "options": {"horizon": 5}},
    )
    rows = TaskDataset([str(path), "held_out"])
    assert len(rows) == 2
    found = [json.loads(row["episode"]) for row in rows]
    assert [row["group"] for row in found] == ["eval/0", "eval/1"]
    assert sorted(row["task"] for row in found) == [7, 9]
    assert all(row["held_out"] for row in rows)
    assert not TaskDataset(str(path))[0]["held_out"]
    assert read_run(str(path)).config.environment.options == {"horizon": 2}
    assert read_run(str(path), held_out=True).config.environment.options == {"horizon": 5}


def test_the_best_checkpoint_is_kept(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ascribe.engines.metrics import HELD_OUT, read_metrics
    from ascribe_lab.train.verl.episodes import EpisodeSteps

    folder = tmp_path / "run"
    folder.mkdir()
    steps = EpisodeSteps(verl_config(config))
    for step, won in enumerate([0.75, 0.25, 0.5, 0.5, None, 0.25]):
        actor = folder / "checkpoints" / f"global_step_{step}" / "actor"
        if step:  # before the first step there is no checkpoint
            actor.mkdir(parents=True)
            (actor / "model.pt").write_text(str(step))
            (actor / "optim_0.pt").write_text("")
        if step in (0, 4):  # at the start, and where the run is resumed
            logger = steps.metrics_file(step)
        logger.log({} if won is None else {"val-aux/ascribe/won/mean@2": won}, step)
    assert [row.get(HELD_OUT) for row in read_metrics(folder)] == [0.75, 0.25, 0.5, 0.5, None, 0.25]
    assert (folder / "best" / "model.pt").read_text() == "2"
    assert not (folder / "best" / "optim_0.pt").exists()
    printed = capsys.readouterr().err.splitlines()
    assert printed[2].startswith("iteration 2/1: 50% of held-out tasks won, ")
    assert len(printed) == 6


def test_fingerprints_need_the_pass_that_a_bypass_leaves_out(tmp_path: Path) -> None:
    from ascribe_lab.train.verl.episodes import refuse_unsupported
    from ascribe_lab.train.verl.tasks import read_run

    path = toys.write_config(
        tmp_path / "run.yaml", tmp_path, recipe__name="bipace_q", fingerprints__layer=-1
    )
    made = verl_config(path, algorithm__rollout_correction={"bypass_mode": True})
    with pytest.raises(ValueError, match="bypass_mode: fingerprints come from the pass"):
        refuse_unsupported(made, read_run(made.data.train_files))


# Any agent loop.


def loop_config(**keys: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.create(
        {
            "algorithm": {"adv_estimator": "ascribe", "use_kl_in_reward": False},
            "actor_rollout_ref": {
                "rollout": {"n": 2, "agent": {"agent_loop_config_path": "agent.yaml"}}
            },
            "data": {"train_files": "train.parquet"},
            "ascribe": keys,
        }
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"recipe": "gigpo", "state": "room"}, "ascribe.state: .*'room'.*observation"),
        ({"recipe": "gigpo", "gama": 0.9}, r"ascribe\.\*: .*gama"),
        ({"recipe": "nothing"}, r"ascribe\.\*: .*nothing"),
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, Any], said: str) -> None:
    from ascribe.engines.verl.loops import LoopSteps

    with pytest.raises(ValueError, match=said):
        LoopSteps(loop_config(**keys))
    assert LoopSteps(loop_config()).recipe == recipe(DEFAULT, scale="equal")
    assert LoopSteps(loop_config(scale="paper")).recipe == recipe(DEFAULT)
    wrong = loop_config(recipe="grpo")
    wrong.algorithm.adv_estimator = "grpo"
    with pytest.raises(ValueError, match="set it to ascribe"):
        LoopSteps(wrong)


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two episodes of a group out of order; the first is two rows; a row is padding."""
    import torch

    from ascribe.engines.verl import batch as batches
    from ascribe.engines.verl import loops

    rows = {
        "u_1_0": ([9, 9], [5, 1], [1, 1], 0.5, [0.25]),
        "u_0_1": ([9, 9, 8], [6, 8, 8, 7], [1, 0, 0, 1], 2.0, [0.5, 0.0]),
        "pad_0_0": ([0], [0], [0], 0.0, []),
        "u_0_0": ([9, 9], [4, 4, 8], [1, 1, 0], 2.0, [1.0]),
    }
    names = ("prompts", "responses", "response_mask")

    def nested(place: int) -> Any:
        parts = [torch.tensor(row[place]) for row in rows.values()]
        return torch.nested.as_nested_tensor(parts, layout=torch.jagged)

    fields = {name: nested(place) for place, name in enumerate(names)}
    scores = [[0.0] * (len(row[1]) - 1) + [row[3]] for row in rows.values()]
    fields["rm_scores"] = torch.nested.as_nested_tensor(
        [torch.tensor(one) for one in scores], layout=torch.jagged
    )
    extra = [
        {"turn_rewards": row[4], "turn_states": [f"s{i}" for i in row[1][: len(row[4])]]}
        for row in rows.values()
    ]
    monkeypatch.setattr(batches, "fetch", lambda *_: fields)
    monkeypatch.setattr(batches, "extra_fields", lambda _: extra)
    monkeypatch.setattr(loops, "copy_to_local", lambda _: None)
    monkeypatch.setattr(loops, "get_generation_config", lambda _: None)
    versions = {"min_global_steps": 0, "max_global_steps": 0}
    tags = [{"is_padding": key.startswith("pad"), **versions} for key in rows]
    return Batch(keys=list(rows), tags=tags, partition_id="train"), extra


class Decoder:
    """A tokenizer for numbers."""

    eos_token_id = 1
    chat_template = None

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


class Batch(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.keys)


def test_turns_of_any_loop_are_steps(
    batch: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ascribe.engines.verl import vectors
    from ascribe.engines.verl.loops import LoopSteps

    found = batch[0]
    steps = LoopSteps(loop_config(recipe="bigpo", fingerprints=-1, check="keep", gamma=0.93))
    rows = [np.full(2, 1.0), np.array([2.0, 2.0, 3.0, 3.0]), np.zeros(2), np.full(2, 4.0)]
    monkeypatch.setattr(vectors, "_read", lambda keys, _: rows[: len(keys)])
    credit, spans = steps.credit(found, Decoder(), None, {}, version=0)
    assert "gamma=0.93" in caplog.messages[0]
    assert "With discount 0.93, a step gets 0.86 of a reward 2 steps later" in caplog.messages[0]
    table = credit.table
    assert table is not None
    names = zip(table.trajectory.texts(), table.step.tolist(), table.action.texts(), strict=True)
    assert list(names) == [("u/0", 0, "4 4"), ("u/0", 1, "6"), ("u/0", 2, "7"), ("u/1", 0, "5 1")]
    assert table.reward.tolist() == [0, 0, 2.0, 0.5]
    assert table.state.texts()[:3] == ["9 9", "9 9 8", "8 8"]
    assert set(table.group.texts()) == {"u"}
    # In the batch, in the coordinates of responses; each with its own fingerprint.
    assert spans.sequence.tolist() == [3, 1, 1, 0]
    assert spans.start.tolist() == [0, 0, 3, 0]
    assert spans.end.tolist() == [2, 1, 4, 2]
    assert table.fingerprint is not None
    assert table.fingerprint[:, 0].tolist() == [4, 2, 3, 1]


def test_rewards_of_turns_sum_to_the_score(batch: Any) -> None:
    from ascribe.engines.verl.loops import LoopSteps

    found = batch[0]
    keys = {"recipe": "grpo", "check": "keep", "state": "key", "rewards": "turn_rewards"}
    batch[1][1]["turn_states"] = ["s6", "s7"]
    credit, _ = LoopSteps(loop_config(**keys)).credit(found, Decoder(), None, {}, version=0)
    table = credit.table
    assert table is not None
    # What is left of 2.0 after 1.0 and 0.5 is the last turn's.
    assert table.reward.tolist() == [1.0, 0.5, 0.5, 0.5]
    assert table.state.texts() == ["s4", "s6", "s7", "s5"]
    # A list of another length, and none at all: the group does not count.
    del batch[1][0]["turn_rewards"]
    batch[1][1]["turn_states"] = ["s6"]
    metrics: dict[str, Any] = {}
    credit, _ = LoopSteps(loop_config(**keys)).credit(found, Decoder(), None, metrics, version=0)
    assert not credit.learned.any()
    assert metrics["ascribe/dropped_groups"] == 1
    for fields in batch[1]:
        fields.pop("turn_rewards", None)
    with pytest.raises(ValueError, match=r"none of 3 rows has turn_rewards in extra_fields"):
        LoopSteps(loop_config(**keys)).credit(found, Decoder(), None, {}, version=0)


def test_columns_come_from_tokens_and_from_the_loop(batch: Any) -> None:
    """An entropy is the mean over a turn, a value that of its first token; a loop gives scores."""
    from ascribe.engines.inputs import critic_targets
    from ascribe.engines.verl.loops import LoopSteps

    found, extra = batch
    rows = [np.array(row, float) for row in ([1, 3], [5, 0, 0, 7], [0], [2, 4, 0])]
    config = loop_config(recipe="entropy", wraps="gae gamma=1.0 lam=1.0", check="keep")
    config.critic = {"enable": True}
    tokens = {"entropy": rows, "value": rows}
    steps = LoopSteps(config)
    credit, _ = steps.credit(found, Decoder(), None, {}, version=0, tokens=tokens)
    assert credit.table.entropy.tolist() == [3, 5, 7, 2]
    assert credit.table.value.tolist() == [2, 5, 7, 1]
    # λ-returns of the recipe inside, however entropy scales its advantage; the first is cut.
    assert critic_targets(credit, credit.table.value).tolist() == [9.0, 9.0, 9.0, 0.5]
    for fields in extra:
        fields["turn_step_score"] = fields["turn_rewards"]
    keys = {"recipe": "judged", "check": "keep"}
    credit, _ = LoopSteps(loop_config(**keys)).credit(found, Decoder(), None, {}, version=0)
    assert credit.table.step_score.tolist() == [1.0, 0.5, 0.0, 0.25]
    del extra[0]["turn_step_score"]
    credit, _ = LoopSteps(loop_config(**keys)).credit(found, Decoder(), None, {}, version=0)
    assert credit.dropped == {"u": "bad_turn_step_score"}


def test_a_recipe_that_needs_values_needs_the_critic() -> None:
    from ascribe.engines.verl.loops import LoopSteps

    with pytest.raises(ValueError, match="gae needs the column value, which verl's critic gives"):
        LoopSteps(loop_config(recipe="gae"))


# Episodes.


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread, as verl's does."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


class Server:
    """Answers every prompt with its last token and the end of a turn."""

    def __init__(self, end: int) -> None:
        self.end, self.asked = end, []  # type: ignore[var-annotated]

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any:
        self.asked.append((request_id, sampling_params))
        said = [prompt_ids[-1], self.end][: sampling_params["max_tokens"]]
        extra = {"global_steps": len(self.asked)}
        return SimpleNamespace(
            token_ids=said, log_probs=[-1.0] * len(said), extra_fields=extra, stop_reason=None
        )


def chat() -> Any:
    from ascribe_lab.models import Chat
    from tests.engines.trl_toys import tokenizer

    return Chat(tokenizer(), context=400)


def test_a_thread_asks_the_servers(loop: asyncio.AbstractEventLoop) -> None:
    from ascribe_lab.train.verl.agent_loop import ServedPolicy

    made = chat()
    server = Server(min(made.ends))
    policy = ServedPolicy(made, server, loop, {"temperature": 0.5, "logprobs": True})
    request = Request([{"role": "user", "content": "Where now?"}], seed=7)
    samples = policy([request, request], Sampling(max_tokens=5, stop=("!",)))
    assert [sample.finish for sample in samples] == ["stop", "stop"]
    assert samples[0].response_ids[-1] in made.ends
    assert samples[0].logprobs == (-1.0, -1.0)
    assert len({name for name, _ in server.asked}) == 1
    asked = server.asked[0][1]
    assert asked["temperature"] == 0.5
    assert asked["max_tokens"] == 5
    assert asked["stop"] == ["!"]
    assert asked["stop_token_ids"] == sorted(made.ends)
    assert "seed" not in asked
    assert policy.versions == [1, 1, 2, 2]
    (cut,) = policy([request], Sampling(max_tokens=1))
    assert cut.finish == "length"
    policy = ServedPolicy(made, server, loop, {}, seeded=True)
    policy([request], Sampling())
    policy([request], Sampling())
    first, again = (asked["seed"] for _, asked in server.asked[-2:])
    assert first == again


def test_an_episode_whose_time_is_up_samples_nothing_more(loop: asyncio.AbstractEventLoop) -> None:
    from ascribe_lab.train.verl.agent_loop import ServedPolicy, failed_rollout

    class Slow:
        async def generate(self, **_: Any) -> Any:
            await asyncio.sleep(60)

    policy = ServedPolicy(chat(), Slow(), loop, {}, limit=0.2)
    request = Request([{"role": "user", "content": "Where now?"}], seed=7)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"0.2 s are over \(rollout.episode_limit\)") as caught:
        policy([request], Sampling())
    assert time.monotonic() - began < 30
    (failed,) = failed_rollout(EpisodeSpec("g", 1, 0), caught.value).failed
    assert (failed.kind, failed.trajectory) == (EpisodeFailure.TOO_LONG, "g/1")


def played(loop: asyncio.AbstractEventLoop) -> tuple[Rollout, list[int], Any]:
    from ascribe_lab.train.verl.agent_loop import ServedPolicy

    made = chat()
    policy = ServedPolicy(made, Server(min(made.ends)), loop, {})
    setup = Setup(HALL, {"wish": "?"}, "plain", "serial", 1)
    with setup.open_pool(1) as pool:
        found = rollout(Plan(1, 1, 3), pool, setup.agent, policy)
    return found, policy.versions, made


def sent(rows: Any) -> tuple[dict[int, str], list[int]]:
    """What ``unpack`` takes."""
    texts = {number: row.extra_fields[FIELD] for number, row in enumerate(rows)}
    return texts, [len(row.response_ids) for row in rows]


def test_a_row_for_each_step(loop: asyncio.AbstractEventLoop) -> None:
    from ascribe_lab.train.verl.agent_loop import rows

    found, versions, made = played(loop)
    (trajectory,) = found.trajectories
    made_rows = rows(found, versions, made, whole=True)
    assert len(made_rows) == len(trajectory.steps) == 3
    for row, step in zip(made_rows, trajectory.steps, strict=True):
        assert row.prompt_ids == list(step.sample.prompt_ids)
        assert row.response_ids == list(step.sample.response_ids)
        assert row.response_mask == [1] * len(row.response_ids)
        assert row.reward_score == trajectory.reward
        assert (row.extra_fields["min_global_steps"], row.extra_fields["max_global_steps"]) == (
            1,
            3,
        )
    unpacked, _ = unpack(*sent(made_rows))
    assert unpacked.trajectories[0].steps[2].sample == trajectory.steps[2].sample


def test_one_sequence_has_the_credit_of_step_rows(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    """The same episodes in both layouts: one row each, the same advantages on the same tokens."""
    from ascribe.sessions import spread
    from ascribe_lab.train.chat import ChatPolicy, whole_chat
    from ascribe_lab.train.verl.agent_loop import ServedPolicy, rows

    config = toys.write_config(tmp_path / "run.yaml", tmp_path)
    made = chat()
    rng = np.random.default_rng(0)
    sampled = sorted(set(range(20, 60)) - made.ends)

    class Guesses(Server):
        async def generate(self, request_id: str, **asked: Any) -> Any:
            self.end = min(made.ends)
            asked["prompt_ids"] = [int(rng.choice(sampled))]
            return await super().generate(request_id, **asked)

    setup = Setup(HALL, {"wish": "?", "horizon": 3}, "plain", "serial", 1)
    apart, together = [], []
    agent = whole_chat(setup.agent)
    with setup.open_pool(1) as pool:
        for member in range(4):
            policy = ChatPolicy(ServedPolicy(made, Guesses(0), loop, {}))
            found = rollout(Plan(1, 1, 3), pool, agent, policy)
            (one,) = found.trajectories
            rewards = [replace(each, reward=float(rng.random())) for each in one.steps]
            one = replace(one, name=f"{one.group}/{member}", steps=tuple(rewards))
            played = replace(found, trajectories=(one,))
            apart += rows(played, [0], made, whole=False)
            together += rows(played, [0], made, whole=False, together=True)
    assert len(together) == 4
    assert len(apart) == 12
    # Prompts are computed once.
    assert sum(len(row.prompt_ids) for row in together) < sum(len(row.prompt_ids) for row in apart)
    found = []
    for made_rows in (apart, together):
        unpacked, spans = unpack(*sent(made_rows))
        credit = credited_run(config, unpacked)
        tokens = spread(credit.advantage, spans)
        taught = [
            [
                (i, v)
                for i, m, v in zip(row.response_ids, row.response_mask, values, strict=True)
                if m
            ]
            for row, values in zip(made_rows, tokens, strict=True)
        ]
        off = [
            v
            for row, values in zip(made_rows, tokens, strict=True)
            for m, v in zip(row.response_mask, values, strict=True)
            if not m
        ]
        assert not any(off)
        found.append([pair for row in taught for pair in row])
        assert any(value for _, value in found[-1])
    assert found[0] == found[1]


def test_an_episode_that_was_given_up_is_a_row_without_a_token_to_learn() -> None:
    from ascribe_lab.train.verl.agent_loop import rows

    lost = FailedEpisode("g", "g/0", FailureKind.CRASHED, "gone", 2)
    found = Rollout((), (), (lost,), Clock(0.0, 0.0, 0.0, 0), 3)
    (row,) = rows(found, [], chat(), whole=False)
    assert row.response_mask == [0]
    unpacked, _ = unpack(*sent([row]))
    assert unpacked.failed == (lost,)
    assert unpacked.retries == 3
    assert not unpacked.trajectories


# The engine.


@pytest.mark.parametrize("together", [True, False])
def test_where_prompts_end(together: bool) -> None:
    import torch
    from verl.utils.tensordict_utils import get_tensordict

    from ascribe.engines.verl.engine import decisions, take

    def nested(*parts: Any) -> Any:
        tensors = [torch.tensor(part) for part in parts]
        return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)

    batch = get_tensordict(
        {
            "input_ids": nested([0] * 5, [0] * 9, [0] * 4),
            "prompts": nested([0] * 3, [0] * 2, [0]),
            # One turn; two with an observation before and between; none.
            "response_mask": nested([1, 1], [0, 1, 1, 0, 0, 1, 1], [0, 0, 0]),
        },
        {"use_remove_padding": together},
    )
    rows, prompts = decisions(batch)
    assert rows.tolist() == [0, 1, 1, 2]
    assert prompts.tolist() == [3, 3, 7, 1]
    # The hidden state of a token is its row and its column.
    shape = (1, 24) if together else (3, 9)
    states = torch.stack(torch.meshgrid(*map(torch.arange, shape), indexing="ij"), dim=-1)
    taken = take(batch, rows, prompts, states).tolist()
    if together:  # verl has appended padding
        assert taken == [[0, 2], [0, 5 + 2], [0, 5 + 6], [0, 14 + 0]]
    else:
        assert taken == [[0, 2], [1, 2], [1, 6], [2, 0]]


# The processor as a device.


def test_the_platform_is_complete() -> None:
    import torch

    from ascribe_lab.train.verl.cpu import platform

    made = platform.CpuPlatform()
    assert made.is_available()
    assert made.device_count() == 1
    assert made.communication_backend_name() == "gloo"
    assert made.ray_resource_options(2) == {"num_gpus": 2}
    assert not made.is_ipc_supported()
    assert made.get_device_capability() == (None, None)
    assert made.rollout_env_vars().keys() == platform.SERVER.keys()
    assert made.current_device() == "cpu"
    with made.nvtx_range("name"):
        made.manual_seed(3)
    first = torch.rand(1)
    made.manual_seed_all(3)
    assert torch.rand(1) == first
    assert torch.cpu.memory_allocated() == 0
    assert torch.cpu.mem_get_info() == (0, 0)
    assert torch.cpu.empty_cache() is None


def test_vllm_is_found_under_its_name() -> None:
    from importlib.metadata import PackageNotFoundError, version

    assert version("vllm").endswith("+cpu")
    with pytest.raises(PackageNotFoundError):
        version("no-such-package")


def test_a_device_is_named_once(tmp_path: Path) -> None:
    from torch import distributed

    distributed.init_process_group(
        "cpu:gloo,cpu:gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        assert distributed.get_world_size() == 1
    finally:
        distributed.destroy_process_group()


def test_an_episode_of_the_agent_loop(
    config: Path, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ascribe_lab.train.verl import agent_loop
    from ascribe_lab.train.verl.tasks import TaskDataset

    made = chat()
    monkeypatch.setattr(agent_loop, "_chat", lambda *_: made)
    playing = agent_loop.EpisodeLoop.__new__(agent_loop.EpisodeLoop)
    playing.config = verl_config(config, actor_rollout_ref__model__path=str(config.parent))
    playing.rollout_config = playing.config.actor_rollout_ref.rollout
    playing.server_manager = Server(min(made.ends))
    parameters = {"temperature": 1.0, "top_p": 1.0}
    playing.apply_chat_template_kwargs = {}
    episode = playing.run(parameters, session_id=1, uid="u", **TaskDataset(str(config))[0])
    found = asyncio.run_coroutine_threadsafe(episode, loop).result(60)
    assert 1 <= len(found) <= 4
    close_players()


def close_players() -> None:
    from ascribe_lab.train.verl import agent_loop

    for players in agent_loop._PLAYERS.values():
        players.close()
    agent_loop._PLAYERS.clear()


def test_options_of_the_template_reach_the_prompts(
    config: Path, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    """As in Qwen3: without thinking, the model's turn begins with thoughts that are over."""
    from ascribe_lab.train.verl import agent_loop
    from ascribe_lab.train.verl.tasks import TaskDataset
    from tests.engines.trl_toys import tokenizer

    folder = tmp_path / "thinker"
    made = tokenizer()
    switch = "{% if enable_thinking is defined and not enable_thinking %}go to room{% endif %}"
    made.chat_template += switch
    made.save_pretrained(folder)
    prompts: dict[bool, list[int]] = {}
    for thinking in (True, False):
        playing = agent_loop.EpisodeLoop.__new__(agent_loop.EpisodeLoop)
        playing.config = verl_config(config, actor_rollout_ref__model__path=str(folder))
        playing.rollout_config = playing.config.actor_rollout_ref.rollout
        playing.server_manager = Server(made.eos_token_id)
        playing.apply_chat_template_kwargs = {} if thinking else {"enable_thinking": False}
        row = TaskDataset(str(config))[0]
        episode = playing.run({}, session_id=1, uid="u", **row)
        prompts[thinking] = asyncio.run_coroutine_threadsafe(episode, loop).result(60)[0].prompt_ids
    shorter = len(prompts[True])
    assert prompts[False][:shorter] == prompts[True]
    assert made.decode(prompts[False][shorter:]).split() == ["go", "to", "room"]
    close_players()


def credited_run(config: Path, played: Rollout) -> Any:
    """Episodes with the credit of a run."""
    from ascribe_lab.train.iterations import LocalRollout, credit_iteration
    from ascribe_lab.train.verl.episodes import EpisodeSteps, groups_of

    run = EpisodeSteps(verl_config(config)).run
    rollout = run.config.rollout
    local = [LocalRollout(groups_of(played), played)]
    failures = rollout.failures.policy()
    return credit_iteration(local, run.recipe, size=rollout.size, failures=failures)


def assert_credited(config: Path, played: Rollout, corrections: int) -> None:
    """The trainer credits answers and corrections together, as one group that was to be played."""
    found = credited_run(config, played)
    assert found.dropped == {}
    assert found.counts.all()
    assert found.credit.metrics["corrections"] == corrections


def test_members_of_a_group_wait_for_each_other_and_correct(
    tmp_path: Path, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ascribe_lab.train.verl import agent_loop
    from ascribe_lab.train.verl.tasks import TaskDataset

    config = toys.write_config(
        tmp_path / "run.yaml",
        tmp_path,
        environment__name=HALL,
        environment__options={"horizon": 1},
        recipe__name="ibpo",
        rollout__max_turns=1,
        rollout__corrections=2,
    )
    made = chat()
    monkeypatch.setattr(agent_loop, "_chat", lambda *_: made)
    parameters, row = {"temperature": 1.0, "top_p": 1.0}, TaskDataset(str(config))[0]

    def member(number: int, server: Any) -> Any:
        playing = agent_loop.EpisodeLoop.__new__(agent_loop.EpisodeLoop)
        playing.config = verl_config(config, actor_rollout_ref__model__path=str(tmp_path))
        playing.rollout_config = playing.config.actor_rollout_ref.rollout
        playing.server_manager = server
        playing.apply_chat_template_kwargs = {}
        return playing.run(parameters, session_id=number, uid="u", **row)

    async def members(last: Any) -> list[Any]:
        servers = [Server(min(made.ends))] * 3 + [last]
        tasks = [member(number, server) for number, server in enumerate(servers)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    try:
        whole = members(Server(min(made.ends)))
        found = asyncio.run_coroutine_threadsafe(whole, loop).result(60)
        rows = [row for few in found for row in few]
        unpacked, _ = unpack(*sent(rows))
        mended = [t for t in unpacked.trajectories if t.corrects is not None]
        wrong = [t.name for t in unpacked.trajectories if t.corrects is None and t.reward < 1]
        assert [t.corrects for t in mended] == [name for name in wrong for _ in range(2)]
        assert mended
        for number, few in enumerate(found):
            last = unpack(*sent(few[-1:]))[0].trajectories[0]
            assert last.name == f"train/0/{number}", "what verl takes for the result"
        assert_credited(config, unpacked, len(rows) - 4)
        broke = asyncio.run_coroutine_threadsafe(members(None), loop).result(60)
        assert [len(few) for few in broke] == [1, 1, 1, 1], "a group that lost one does not count"
        (failed,) = unpack({0: broke[3][0].extra_fields[FIELD]}, [1])[0].failed
        assert failed.kind is EpisodeFailure.RAISED
        assert failed.detail.startswith("AttributeError: ")
        assert not agent_loop._BARRIER.waiting
    finally:
        close_players()
