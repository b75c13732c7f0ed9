"""AscribeAsyncTrainer: TRL's real rollout loop and trainer, sessions of one row and of several.

Page: docs/engines/trl_async.md. vLLM and TRL's kernel for packed rows need a GPU;
``trl_async_toys`` has what stands in for them.
"""

import copy
import json
import pickle
import threading
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ascribe import recipe
from ascribe.steps.table import StepTable
from tests.engines import trl_async_toys as toys
from tests.engines.trl_tools import tool_model
from tests.engines.trl_toys import ON_CPU, QUIET, logged, private_names

pytest.importorskip("trl")
pytest.importorskip("aiohttp", reason="TRL's rollout process needs it")
pytestmark = [pytest.mark.engine, QUIET]

OF_TRL = recipe("grpo", std="population", std_epsilon=1e-8)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """The folder of a model that calls a tool, its tokenizer, and the model."""
    from transformers import AutoModelForCausalLM

    folder, tokenizer = tool_model(tmp_path_factory)
    return folder, tokenizer, AutoModelForCausalLM.from_pretrained(folder)


def rows(turns: list[Any], layout: str) -> list[Any]:
    """A session as one row; as a row for each turn; or as those, with earlier turns in the mask."""
    from trl.experimental.async_grpo.async_rollout_worker import (
        TrainingSequence,
        _chain_to_sequences,
    )

    (whole,), _ = _chain_to_sequences(turns, "session", 1024)
    if layout == "one":
        return [whole]
    made = []
    for turn in turns:
        start = len(turn.prompt_ids)
        end = start + len(turn.output_ids)
        earlier = whole.completion_mask[:start] if layout == "repeated" else [0] * start
        log_probs = whole.old_log_probs[:end]
        mask = [*earlier, *[1] * len(turn.output_ids)]
        made.append(TrainingSequence(whole.input_ids[:end], mask, log_probs, "session"))
    return made


def scored(made: Any, method: Any, layout: str = "one", **options: Any) -> list[Any]:
    """The samples of the group; ``method`` None for TRL's own advantages."""
    from ascribe.engines.trl.async_trainer import Crediting

    _, tokenizer, model = made
    chats = [toys.chat(rooms) for rooms in toys.MOVES]
    sessions = [rows(toys.turns(tokenizer, chat, model), layout) for chat in chats]
    credit = None if method is None else Crediting(method, "observation", "drop")
    loop = toys.loop(tokenizer, credit, **options)
    samples: list[Any] = loop._loop.run_until_complete(
        loop._score_group(toys.group(sessions, chats))
    )
    loop._loop.close()
    return samples


def per_turn(sample: Any) -> list[float]:
    """The advantage of each turn of a row, if all its tokens have the same."""
    mask = sample.completion_mask
    assert not sample.advantage.tokens[mask == 0].any()
    starts = np.flatnonzero(np.diff(mask, prepend=0) == 1)
    turns = np.split(sample.advantage.tokens, starts)[1:]
    assert all(np.unique(turn[turn != 0]).size <= 1 for turn in turns)
    return [float(turn[0]) for turn in turns]


def test_grpo_is_trls_own(made: Any) -> None:
    theirs, ours = scored(made, None), scored(made, OF_TRL)
    assert len(theirs) == len(ours) == len(toys.MOVES)
    for one, other in zip(theirs, ours, strict=True):
        expected = np.array(one.completion_mask) * np.float32(one.advantage)
        np.testing.assert_array_equal(other.advantage.tokens, expected.astype(np.float32))
        assert pickle.loads(pickle.dumps(other)).advantage.versions == (3, 5)
    assert max(one.advantage for one in theirs) > 1


@pytest.mark.parametrize("layout", ["one", "turns", "repeated"])
def test_gigpo_by_hand(made: Any, layout: str) -> None:
    samples = scored(made, recipe("gigpo", gamma=0.5), layout)
    won = [rooms.count(2) / 4 for rooms in toys.MOVES]
    visits: dict[int | None, list[float]] = {}
    for rooms, reward in zip(toys.MOVES, won, strict=True):
        for step, room in enumerate([None, *rooms]):
            visits.setdefault(room, []).append(reward * 0.5 ** (len(rooms) - step))
    expected = []
    for rooms, reward in zip(toys.MOVES, won, strict=True):
        episode = (reward - mean(won)) / (stdev(won) + 1e-6)
        for step, room in enumerate([None, *rooms]):
            peers = visits[room]
            own = reward * 0.5 ** (len(rooms) - step)
            value = (own - mean(peers)) / (stdev(peers) + 1e-6) if len(peers) > 1 else 0.0
            expected.append(episode + value)
    found = [value for sample in samples for value in per_turn(sample)]
    np.testing.assert_array_equal(found, np.array(expected, dtype=np.float32))
    assert len(samples) == (len(toys.MOVES) if layout == "one" else len(expected))


def test_tokens_of_a_batch(made: Any) -> None:
    """TRL's batch has the advantages of tokens, in every release that is tested."""
    from trl.experimental.async_grpo import async_grpo_trainer as of_trl

    from ascribe.engines.trl import AscribeAsyncTrainer

    samples = scored(made, recipe("gigpo"))
    names = ("input_ids", "completion_mask", "old_log_probs", "advantage", "group_id", "metrics")
    examples = [{name: getattr(each, name) for name in names} for each in samples]
    rows = next(iter(of_trl.FixedCountBatcher(examples, 1, len(examples))))
    collate = of_trl.DataCollatorForRollout(made[1].pad_token_id)
    version: Any = SimpleNamespace(model_version=6)
    batch = AscribeAsyncTrainer._collate(version, collate, [rows])
    in_loss = batch["token_index"] >= 0 if "token_index" in batch else batch["completion_mask"] > 0
    expected = [each.advantage.tokens[each.completion_mask > 0] for each in samples]
    found = np.sort(batch["advantages"][in_loss].numpy())
    np.testing.assert_array_equal(found, np.sort(np.concatenate(expected)))
    assert collate.metrics["ascribe/versions/lag_max"] == [3]
    assert collate.metrics["ascribe/versions/group_mean"] == [3]


def trainer(made: Any, folder: Path, kind: Any = None, args: Any = None, **options: Any) -> Any:
    """A trainer on the CPU; ``kind`` may be TRL's own."""
    packing = pytest.importorskip(
        "trl.experimental.async_grpo.packing", reason="before TRL 1.16 it takes a kernel"
    )
    from transformers import AttentionInterface
    from trl.experimental.async_grpo import AsyncGRPOConfig

    from ascribe.engines.trl import AscribeAsyncTrainer

    given = {
        "output_dir": str(folder),
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 48,
        "max_tool_calling_iterations": 4,
        "token_budget": 0,
        "learning_rate": 1e-2,
        "dtype": "float32",
        **ON_CPU,
    }
    result = (kind or AscribeAsyncTrainer)(
        str(made[0]),
        toys.visits,
        AsyncGRPOConfig(**(given | (args or {}))),
        toys.tasks(),
        made[1],
        tools=[toys.move],
        **options,
    )
    AttentionInterface.register(packing.TREE_ATTENTION, toys.dense_attention)
    return result


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL asks for the name of the GPU, for its metrics, and whether vLLM is installed."""
    import torch
    from trl.experimental.async_grpo import async_rollout_worker

    monkeypatch.setattr(torch.cuda, "get_device_name", str)
    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)


def gradients(result: Any, samples: list[Any]) -> dict[str, Any]:
    """Those of TRL's loss on these samples, through its queue, its batches and its packing."""
    for sample in samples * 2:  # the loader fetches the next batch before it yields one
        result.rollout_queue.put(sample)
    batch = next(iter(result.get_train_dataloader()))
    result.current_gradient_accumulation_steps = 1
    model = result.model.train()
    model.zero_grad()
    result.compute_loss(model, batch).backward()
    return {name: each.grad.clone() for name, each in model.named_parameters()}


@pytest.mark.usefixtures("on_cpu")
def test_rows_do_not_change_the_update(made: Any, tmp_path: Path) -> None:
    import torch

    found = {}
    for layout in ("one", "turns", "repeated"):
        samples = scored(made, recipe("gigpo"), layout)
        args = {"per_device_train_batch_size": len(samples)}
        result = trainer(made, tmp_path, args=args, weight_transfer=toys.Published(made[2]))
        result.model_version = 6
        found[layout] = gradients(result, samples)
    for layout in ("turns", "repeated"):
        for name, one in found["one"].items():
            torch.testing.assert_close(found[layout][name], one, atol=1e-6, rtol=0)
    assert max(float(each.abs().max()) for each in found["one"].values()) > 1e-2


def play(loop: Any, count: int) -> list[Any]:
    """So many samples of a loop that runs in a thread of its own."""
    playing = threading.Thread(target=loop.run, daemon=True)
    playing.start()
    samples = [loop.rollout_buffer.get(timeout=60) for _ in range(count)]
    loop._loop.call_soon_threadsafe(loop._stop_event.set)
    playing.join(timeout=60)
    assert not playing.is_alive()
    assert not loop._failed_event.is_set()
    return samples


@pytest.mark.parametrize("template", ["as the model writes", "with other spaces"])
def test_sessions_over_http(made: Any, template: str) -> None:
    """TRL's loop plays sessions against a server; their turns have the advantages of messages.

    Also where the template writes a call with other spaces than the model did, so that TRL
    overwrites its tokens. A turn begins where its prompt ends.
    """
    from ascribe.engines.trl.async_trainer import Crediting

    tokenizer = spaced(made[1]) if template == "with other spaces" else made[1]
    method = recipe("sbc", states="exact")
    with toys.serve(made[2], made[1]) as url:
        options = {"tools": [toys.move], "max_tokens": 48, "vllm_server_url": url}
        credit = Crediting(method, "tool", "drop")
        loop = toys.loop(tokenizer, credit, max_inflight_tasks=4, **options)
        samples = play(loop, 3 * len(toys.MOVES))
    groups: dict[int, dict[str, Any]] = {}
    for sample in samples:
        groups.setdefault(sample.group_id, {})[sample.advantage.session] = sample
    tokens = 0
    for each in groups.values():
        group = [sample for sample in each.values() if not np.isnan(sample.metrics["reward"])]
        if len(each) < len(toys.MOVES) or not group:
            continue
        expected = iter(method(by_hand(group)).advantage)
        for sample in group:
            ids = [*sample.input_ids]
            starts, values = [], []
            for place, message in enumerate(sample.completion):
                if message["role"] == "assistant":
                    chat = [*sample.prompt, *sample.completion[:place]]
                    prompt = tokenizer.apply_chat_template(
                        chat, add_generation_prompt=True, tokenize=True, return_dict=False
                    )
                    assert ids[: len(prompt)] == prompt
                    starts.append(len(prompt))
                    values.append(next(expected))
            learned = np.flatnonzero(sample.completion_mask)
            turn = np.searchsorted(starts, learned, side="right") - 1
            tokens += len(learned)
            found = sample.advantage.tokens[learned]
            np.testing.assert_allclose(found, np.array(values)[turn], atol=1e-6)
    assert tokens > 100
    metrics: dict[str, list[Any]] = {}
    while not loop.metrics_queue.empty():
        for name, value in loop.metrics_queue.get().items():
            metrics.setdefault(name, []).append(value)
    assert {"ascribe/signal_share", "rollout/turns_max"} <= metrics.keys()
    assert not any(count for count, _ in metrics["ascribe/from_tokens_share"])
    realigned, turns = np.sum(metrics["ascribe/realigned_share"], axis=0)
    assert realigned > turns / 4 or tokenizer is made[1]


def spaced(tokenizer: Any) -> Any:
    """The tokenizer, with a template that writes calls with other spaces than the model does."""
    other = copy.deepcopy(tokenizer)
    other.chat_template = tokenizer.chat_template.replace('{"name": ', '{ "name":  ')
    assert other.chat_template != tokenizer.chat_template
    return other


def by_hand(samples: list[Any]) -> Any:
    """The steps of sessions, from their messages."""
    rows = []
    for number, sample in enumerate(samples):
        state = sample.prompt[0]["content"]
        for message in sample.completion:
            if message["role"] == "tool":
                state = message["content"]
                continue
            calls = [call["function"] for call in message.get("tool_calls") or ()]
            action = json.dumps(calls) if calls else message.get("content", "").strip()
            rows.append([number, state, action, 0.0])
        rows[-1][-1] = sample.metrics["reward"]
    numbers, states, actions, rewards = zip(*rows, strict=True)
    step = [numbers[:row].count(number) for row, number in enumerate(numbers)]
    columns = {"group": ["task"] * len(rows), "trajectory": numbers, "step": step}
    columns |= {"state": states, "action": actions, "reward": rewards}
    return StepTable.from_columns(columns)


def test_a_harness_over_http(made: Any) -> None:
    """Agents play over HTTP and compact their context: a session of several rows counts once."""
    pytest.importorskip("openenv.core.harness.capture", reason="needs openenv 0.10")
    pytest.importorskip(
        "trl.experimental.async_grpo.packing", reason="TRL 1.16 is for openenv 0.10"
    )
    from trl.experimental.async_grpo.openenv_harness import _HarnessRolloutLoop

    from ascribe.engines.trl.async_trainer import Crediting
    from tests.engines.trl_harness import Agents

    with toys.serve(made[2], made[1]) as url:
        loop = toys.loop(
            made[1],
            Crediting(OF_TRL, "observation", "drop"),
            _HarnessRolloutLoop,
            harness_session_factory=partial(Agents, url),
            reward_funcs=[],
            max_inflight_tasks=4,
        )
        samples = play(loop, 12)
    sessions: dict[int, dict[str, Any]] = {}
    for sample in samples:
        rows = sessions.setdefault(sample.group_id, {})
        rows.setdefault(sample.advantage.session, []).append(sample)
    whole = [group for group in list(sessions.values())[:-1] if len(group) == len(toys.MOVES)]
    assert whole
    assert max(len(rows) for group in whole for rows in group.values()) > 1
    for group in whole:
        won = np.array([rows[0].metrics["reward"] for rows in group.values()])
        expected = (won - won.mean()) / (won.std() + 1e-8)
        for rows, value in zip(group.values(), expected, strict=True):
            assert {turn for row in rows for turn in per_turn(row)} == {np.float32(value)}


def check_run(result: Any) -> None:
    """Train; turns of one row have different advantages, and what is logged agrees with TRL."""
    batches: list[Any] = []
    loss = result.compute_loss

    def keep(model: Any, inputs: Any, **more: Any) -> Any:
        batches.append(inputs)
        return loss(model, inputs, **more)

    result.compute_loss = keep
    result.train()
    rows = [
        batch["advantages"][batch["segment_id"] == row].unique()
        for batch in batches
        for row in range(int(batch["segment_id"].max()) + 1)
    ]
    assert max(len(values) for values in rows) > 1
    assert max(logged(result, "grad_norm")) > 0
    assert logged(result, "ascribe/signal_share")
    assert logged(result, "ascribe/versions/lag_max") == logged(result, "sample/staleness_max")
    assert abs(logged(result, "ratio")[0] - 1) < 1e-4  # the first update is on policy


@pytest.mark.nightly
@pytest.mark.usefixtures("on_cpu")
def test_updates_of_the_whole_trainer(made: Any, tmp_path: Path) -> None:
    """Rollouts are played in TRL's own process, by the weights of the last update.

    The template writes calls with other spaces than the model does.
    """
    published = toys.Published(made[2])
    with toys.serve(made[2], made[1]) as url:
        args = {"max_steps": 2, "per_device_train_batch_size": 16, "vllm_server_base_url": url}
        options = {"args": args, "weight_transfer": published, "recipe": "gigpo"}
        result = trainer((made[0], spaced(made[1]), made[2]), tmp_path, **options)
        check_run(result)
    assert published.syncs == 3
    assert max(logged(result, "ascribe/realigned_share")) > 0.2
    assert max(logged(result, "ascribe/from_tokens_share")) == 0


@pytest.mark.nightly
@pytest.mark.usefixtures("on_cpu")
def test_updates_with_a_harness(made: Any, tmp_path: Path) -> None:
    """The same with agents over HTTP, which OpenEnv's server captures."""
    pytest.importorskip("openenv.core.harness.capture", reason="needs openenv 0.10")
    from trl.experimental.async_grpo.openenv_harness import HarnessRolloutWorker

    from tests.engines.trl_harness import Agents

    with toys.serve(made[2], made[1]) as url:
        worker = HarnessRolloutWorker(
            model_name="model",
            dataset=toys.tasks(),
            reward_funcs=[],
            processing_class=made[1],
            eos_token_ids=[made[1].eos_token_id],
            num_generations=4,
            max_inflight_tasks=8,
            harness_session_factory=partial(Agents, url),
        )
        args = {"max_steps": 2, "per_device_train_batch_size": 16, "vllm_server_base_url": url}
        options = {"weight_transfer": toys.Published(made[2]), "rollout_worker": worker}
        check_run(trainer(made, tmp_path, args=args, recipe="returns", **options))


@pytest.mark.nightly
@pytest.mark.usefixtures("on_cpu")
def test_updates_with_vllm(made: Any, tmp_path: Path) -> None:
    """The same with a real server, which takes adapters over HTTP; weights would need NCCL."""
    pytest.importorskip("vllm")
    from peft import LoraConfig

    with toys.vllm(made[0]) as url:
        args = {
            "max_steps": 3,
            "per_device_train_batch_size": 16,
            "max_staleness": 2,
            "vllm_server_base_url": url,
        }
        adapter = LoraConfig(r=8, target_modules=["q_proj"], init_lora_weights="gaussian")
        check_run(trainer(made, tmp_path, args=args, peft_config=adapter, recipe="gigpo"))


def test_sessions_without_tokens_or_rewards(made: Any) -> None:
    """The first counts in the baseline, the second does not; neither is learned from."""
    from ascribe.engines.trl.async_trainer import Crediting

    chats = [toys.chat([2]), toys.chat([1]), toys.chat([0, 2, 2]), toys.chat([])]
    sessions = [rows(toys.turns(made[1], chat), "one") for chat in chats]
    sessions[0] = []
    for method, won in ((OF_TRL, [0.25, 0.0, 0.5]), (recipe("rloo"), [0.25, 0.0, 0.5])):
        loop = toys.loop(made[1], Crediting(method, "observation", "drop"))
        group = toys.group(list(sessions), chats)
        samples = loop._loop.run_until_complete(loop._score_group(group))
        loop._loop.close()
        assert [sample.completion for sample in samples] == chats[1:]
        spread = np.std(won) + 1e-8 if method is OF_TRL else 2 / 3
        expected = [(reward - 0.25) / spread for reward in won[1:]]
        found = [set(per_turn(sample)) for sample in samples]
        assert found == [{np.float32(value)} for value in (*expected, 0.0)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"recipe": "reinforce_pp"}, "compares the groups of a batch"),
        ({"recipe": recipe("gigpo", scope="batch")}, "compares the groups of a batch"),
        ({"recipe": "bipace_q"}, "fingerprints of the policy"),
        ({"recipe": "gae"}, "needs the column value"),
        ({"recipe": "entropy"}, "needs the column entropy"),
        ({"recipe": "ibpo"}, "needs the column corrects"),
        ({"recipe": recipe("returns", memory=0.8)}, "returns carries state .* or leave memory out"),
        ({"args": {"num_generations": 1}}, "num_generations: sbc compares the rollouts of a task"),
        ({"state": "key"}, "have no keys"),
        ({"rollout_worker": object()}, "no AsyncRolloutWorker"),
    ],
)
@pytest.mark.usefixtures("on_cpu")
def test_refused(made: Any, tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    if "rollout_worker" in options:
        options = {"rollout_worker": SimpleNamespace(rollout_buffer=None)}
    with pytest.raises(ValueError, match=problem):
        trainer(made, tmp_path, weight_transfer=toys.Published(made[2]), **options)


@pytest.mark.usefixtures("on_cpu")
def test_private_names(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trl.experimental.async_grpo import AsyncGRPOTrainer
    from trl.experimental.async_grpo.async_rollout_worker import (
        AsyncRolloutWorker,
        _AsyncRolloutLoop,
    )

    from ascribe.engines.trl import async_trainer

    used = private_names(Path(str(async_trainer.__file__)))
    theirs = (AsyncGRPOTrainer, AsyncRolloutWorker, _AsyncRolloutLoop)
    shared = {name for name in used if any(hasattr(each, name) for each in theirs)}
    assert shared == set(async_trainer.PRIVATE)
    of_rows = {*vars(async_trainer.RowBuilder)} & {*vars(async_trainer.RowBuilder.__base__)}
    overridden = {name for name in of_rows if not name.startswith("__")}
    assert overridden == set(async_trainer.OF_ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(async_trainer.RowBuilder.__base__, "append_turn", lambda self, turn: None)
        with pytest.raises(ImportError, match=r"lacks append_turn\(kind\)"):
            trainer(made, tmp_path, weight_transfer=toys.Published(made[2]))
    monkeypatch.setattr(_AsyncRolloutLoop, "_score_group", lambda self, members: members)
    with pytest.raises(ImportError, match=r"lacks _score_group\(group\)"):
        trainer(made, tmp_path, weight_transfer=toys.Published(made[2]))
