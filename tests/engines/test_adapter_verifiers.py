"""verifiers 0.4: its own episodes in, its own training samples have the advantages."""

import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

pytest.importorskip("verifiers.v1")

from ascribe.cli import app
from ascribe.engines.adapters import credit_batch
from ascribe.engines.adapters.contract import EPISODES, check_adapter
from ascribe.engines.adapters.verifiers import OPTIONS, VerifiersAdapter
from tests.engines.adapter_toys import run_snippet
from tests.engines.option_lists import check_lists

ADAPTER = VerifiersAdapter()


def test_the_contract() -> None:
    assert [result for result in check_adapter(ADAPTER) if not result.kept] == []


def test_samples_have_the_advantages_and_records_keep_them() -> None:
    from verifiers.v1.episode import WireEpisode

    episodes = ADAPTER.example(EPISODES)
    names = run_snippet("verifiers", episodes=episodes)
    result, credited = names["episodes"], names["credited"]
    again = [WireEpisode.model_validate(each.to_record()) for each in result]
    rows = iter(credited.advantage)
    for episode, read, example in zip(result, again, EPISODES, strict=True):
        (branch,), (stored,) = episode.traces[0].branches, read.traces[0].branches
        assert len(branch.advantages) == len(branch.token_ids) == len(example.tokens)
        values = [a for a, m in zip(branch.advantages, branch.sampled_mask, strict=True) if m]
        expected = [a for _, response in example.turns for a in [next(rows)] * len(response)]
        assert values == pytest.approx(expected)
        assert stored.advantages == pytest.approx(branch.advantages, abs=1e-4)  # it rounds


def test_every_option_of_verifiers_has_an_answer() -> None:
    pytest.importorskip("verifiers.v1.utils.trace_store", reason="the lists are of verifiers 0.4")
    check_lists(OPTIONS)


def test_a_weighted_reward_counts_by_its_weight() -> None:
    episodes = ADAPTER.example(EPISODES)
    for episode in episodes:
        episode.traces[0].record_reward("style", 2.0, weight=-0.25)
    table, _ = ADAPTER.steps(episodes)
    assert table.reward.sum() == sum(episode.traces[0].reward for episode in episodes)
    assert table.reward.sum() == sum(e.reward for e in EPISODES) - 0.5 * len(EPISODES)


def test_a_mask_with_zeros_inside_a_message_leaves_the_turn() -> None:
    episodes = ADAPTER.example(EPISODES)
    expected, _ = ADAPTER.steps(episodes)
    node = max(episodes[0].traces[0].nodes, key=lambda each: sum(each.mask))
    place = node.mask.index(True) + 1
    assert node.mask[place]
    node.mask[place] = False
    table, places = ADAPTER.steps(episodes)
    assert table.to_dicts() == expected.to_dicts()
    ADAPTER.put(episodes, places, table.step + 1.0)
    assert node.advantages == [3.0, 3.0]


def test_a_judge_and_a_failed_trace_are_left_alone() -> None:
    episodes = ADAPTER.example(EPISODES)
    episodes[0].traces[0].agent.trainable = False
    episodes[1].traces[0].ok = False
    result, credited = credit_batch(ADAPTER, episodes, "gigpo")
    assert all(n.advantages is None for each in result[:2] for n in each.traces[0].nodes)
    assert result[2].traces[0].branches[0].advantages is not None
    assert len(credited.advantage) == sum(len(e.turns) for e in EPISODES[2:])


class ScriptedModel(BaseHTTPRequestHandler):
    """A model server on loopback that guesses by a fixed sequence."""

    requests = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seen = body["messages"][-1]["content"]
        number = ScriptedModel.requests = ScriptedModel.requests + 1
        guess = 4 if seen.startswith("Riddle") else (2, 7, 3, 5, 6, 1, 8)[number % 7]
        reply = {
            "id": "r",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": str(guess)},
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        payload = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.filterwarnings("ignore")
def test_an_environment_is_played_credited_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verifiers.v1.utils.trace_store", reason="since verifiers 0.4")
    from verifiers.v1.clients import ModelContext
    from verifiers.v1.configs.client import EvalClientConfig
    from verifiers.v1.episode import GroupInfo
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config
    from verifiers.v1.utils.trace_store import write_episode

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv("SCRIPTED_KEY", "none")
    server = ThreadingHTTPServer(("127.0.0.1", 0), ScriptedModel)
    Thread(target=server.serve_forever, daemon=True).start()
    config = resolve_env_config({"taskset": {"id": "verifiers-guess"}})
    context = ModelContext(
        model="scripted",
        client=EvalClientConfig(
            base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key_var="SCRIPTED_KEY"
        ),
    )

    async def play() -> list:
        env, episodes = load_environment(config), []
        async with env.serving():
            for task in env.taskset.load():
                for slot in env.slots(task, 4):
                    episode = await env.run_slot(slot, context)
                    episode.group = GroupInfo(id=task.data.prompt[:8])
                    episodes.append(episode)
        return episodes

    try:
        episodes = asyncio.run(play())
    finally:
        server.shutdown()
        server.server_close()
    assert [each.errors for each in episodes] == [[]] * 8
    assert all(each.ok for each in episodes)
    assert {each.traces[0].reward for each in episodes} == {0.0, 1.0}
    result, credited = credit_batch(ADAPTER, episodes, "gigpo")
    assert len(credited.advantage) == sum(each.traces[0].num_turns for each in episodes)
    assert credited.signal.any()
    for episode in result:
        write_episode(tmp_path, episode)
    out = CliRunner().invoke(
        app, ["report", str(tmp_path / "traces.jsonl"), "--out", str(tmp_path / "report.html")]
    )
    assert out.exit_code == 0, out.output
    assert "8 attempts at 2 tasks" in " ".join(out.output.split())
