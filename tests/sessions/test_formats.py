"""Importers: files of real packages where they install, else in the documented shape.

``make_samples.py`` writes them; the same four attempts are in every file, so every format must
give the same steps.
"""

import gzip
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from ascribe import ProblemKind, TableError, recipe
from ascribe.groups.keys import StateKey
from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading import import_files, read, write_credit
from ascribe.sessions.reading.fields import Fields
from ascribe.sessions.reading.format import FORMAT_GROUP, Format, formats, others
from ascribe.sessions.reading.records import Record
from ascribe.steps.plugins import PluginError
from tests.sessions import make_chats
from tests.sessions import make_samples as samples

pytestmark = pytest.mark.unit

DATA = Path(__file__).parents[1] / "data" / "formats"
FILES = {
    "openai.jsonl": "openai",
    "traces.jsonl": "verifiers",
    "results.jsonl": "verifiers-results",
    "rllm.jsonl": "rllm",
    "atif": "atif",
    "nemo_gym.jsonl": "nemo-gym",
    "log.eval": "inspect",
    "log.json": "inspect",
    "verl.jsonl": "verl",
    "anthropic.jsonl": "anthropic",
    "responses.jsonl": "responses",
    "responses_io.jsonl": "responses",
    "langchain_to_dict.jsonl": "langchain",
    "langchain_dump.jsonl": "langchain",
    "langgraph.jsonl": "langgraph",
    "sharegpt.jsonl": "sharegpt",
    "tau2.json": "tau2",
    "tau_bench.json": "tau-bench",
    "fields.json": "fields",
    "swe_agent.jsonl": "swe-agent",
    "mini_swe_agent.jsonl": "mini-swe-agent",
    "openhands.jsonl": "openhands",
    "openhands_sdk.jsonl": "openhands",
    "chats.parquet": "openai",
}


def look(path: str) -> Any:
    return {"name": "look", "arguments": {"path": path}}


def assert_attempts(
    imported: Any, look: Callable[[str], Any] = look, answering: Callable[[str], str] = str
) -> None:
    """The steps are those of ``make_samples.ATTEMPTS``, whose actions the functions write."""
    table = imported.table
    assert len(table) == sum(len(paths) + 1 for paths, _, _ in samples.ATTEMPTS)
    rows = table.to_dicts()
    assert len({row["group"] for row in rows}) == 1
    attempts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        attempts.setdefault(row["trajectory"], []).append(row)
    for steps, (paths, answer, reward) in zip(attempts.values(), samples.ATTEMPTS, strict=True):
        assert [json.loads(step["action"]) for step in steps[:-1]] == [*map(look, paths)]
        assert steps[-1]["action"] == answering(answer)
        assert [step["reward"] for step in steps] == [0.0] * len(paths) + [reward]
        assert [step["terminated"] for step in steps] == [False] * len(paths) + [True]
        for step, path in zip(steps[1:], paths, strict=True):
            assert step["state"].endswith(samples.FILES[path])
    assert imported.alone["observation"] == 2 / 16
    assert imported.alone["history"] == 4 / 16
    shown = [json.loads(text) for text in imported.carried.column("messages").to_pylist()]
    assert samples.TASK in shown[0][-2]["content"]
    assert [message["role"] for message in shown[1]] == ["tool", "assistant"]


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_steps(name: str):
    imported = import_files([DATA / name])
    assert imported.format == FILES[name]
    assert_attempts(imported)
    assert_attempts(import_files([DATA / name], form=FILES[name]))


def test_every_format_has_an_example_or_no_code():
    for name, each in formats().items():
        if name != "claude-code" and (each.example or not isinstance(each.reads, Fields)):
            imported = import_files([DATA.parent / each.example], unrewarded=True)
            assert imported.format == name


def test_a_format_knows_no_other():
    package = "ascribe.sessions.formats"
    for path in (DATA.parents[2] / "src" / package.replace(".", "/")).glob("[a-z]*.py"):
        assert f"from {package}" not in path.read_text(), path.name


def test_formats_of_other_packages_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def reads(record: Record) -> list[Conversation]:
        said = {"role": "assistant", "content": record.get("said").text()}
        return [Conversation(group="g", trajectory=record.short(), messages=[said], reward=1.0)]

    theirs = Format("theirs", "their logs", "said", reads)
    point = metadata.EntryPoint("theirs", "package:FORMAT", FORMAT_GROUP)
    monkeypatch.setattr(
        "ascribe.sessions.reading.format.entry_points", lambda *_: {"theirs": point}
    )
    monkeypatch.setattr("ascribe.sessions.reading.format.load_point", lambda _: theirs)
    others.cache_clear()
    try:
        imported = import_files([lines(tmp_path, {"said": "hello"})])
        assert (imported.title, imported.table.action.texts()) == ("their logs", ["hello"])
        assert import_files([lines(tmp_path, chat(reward=1) | {"said": "x"})]).format == "openai"
        theirs = replace(theirs, name="mine")
        others.cache_clear()
        with pytest.raises(PluginError, match="a Format with the name 'theirs'"):
            import_files([lines(tmp_path, {"said": "hello"})])
    finally:
        others.cache_clear()


def test_files_that_the_packages_write_now(tmp_path: Path):
    """With verifiers 0.4, verifiers 0.1 or Inspect, whatever is installed."""
    writers = samples.writers()
    if not writers:
        pytest.skip("needs verifiers or inspect-ai")
    # In a process of its own: these packages warn, and leave connections open.
    subprocess.run([sys.executable, samples.__file__, tmp_path], check=True)
    names = {"write_traces": ["traces.jsonl"], "write_results": ["results.jsonl"]}
    for write in writers:
        for name in names.get(write.__name__, ["log.eval", "log.json"]):
            assert_attempts(import_files([tmp_path / name]))


@pytest.mark.parametrize("write", [*samples.DOCUMENTED, make_chats.write])
def test_committed_files_are_those_of_the_script(tmp_path: Path, write: Any):
    write(tmp_path)
    for path in tmp_path.rglob("*.json*"):
        assert path.read_bytes() == (DATA / path.relative_to(tmp_path)).read_bytes()


def test_a_table_of_steps_is_read_as_one(tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    row = {"group": "g", "trajectory": "t", "step": 0, "state": "s", "action": "a", "reward": 1.0}
    path.write_text(json.dumps(row) + "\n")
    assert read(path).table.to_dicts()[0]["action"] == "a"


# What a format leaves open.


def lines(folder: Path, *rows: Any, name: str = "runs.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def chat(answer: str = "8", **more: Any) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": "What is 3 + 5?"},
        {"role": "assistant", "content": answer},
    ]
    return {"messages": messages, **more}


def test_group_and_reward_are_named_by_the_caller(tmp_path: Path):
    first = chat(meta={"task": "sum", "score": {"exact": 1}})
    second = chat("9", meta={"task": "sum", "score": {"exact": 0}})
    path = lines(tmp_path, first, second)
    table = import_files([path], group="meta.task", reward="meta.score.exact").table
    assert list(table.group.values) == ["sum"]
    assert table.reward.tolist() == [1.0, 0.0]
    with pytest.raises(TableError, match=r"there are: meta\.score\.exact, meta\.task"):
        import_files([path], reward="score")


def test_conversations_with_one_prompt_are_a_group(tmp_path: Path):
    path = lines(tmp_path, chat(reward=1), chat("9", reward=0), chat(reward=True))
    table = import_files([path]).table
    assert table.group.values.size == 1
    assert table.reward.tolist() == [1.0, 0.0, 1.0]


def test_without_any_reward_the_option_is_named(tmp_path: Path):
    with pytest.raises(TableError, match='reward="FIELD", or a file') as caught:
        import_files([lines(tmp_path, chat(), chat())])
    assert caught.value.problems[0].kind is ProblemKind.NO_CONVERSATIONS


def test_one_name_for_two_conversations_does_not_join_them(tmp_path: Path):
    path = lines(tmp_path, chat(id="x", reward=1), chat(id="x", reward=0))
    table = import_files([path]).table
    assert list(table.trajectory.values)[1].endswith("x (runs.jsonl, line 2)")
    assert table.step.tolist() == [0, 0]


def test_demonstrations_in_a_prompt_are_no_steps(tmp_path: Path):
    examples = [
        {"role": "user", "content": "What is 1 + 1?"},
        {"role": "assistant", "content": "2", "weight": 0},
    ]
    row = chat(reward=1)
    row["messages"] = examples + row["messages"]
    assert import_files([lines(tmp_path, row)]).table.action.texts() == ["8"]
    results = {"example_id": 1, "prompt": row["messages"][:3], "completion": row["messages"][3:]}
    path = lines(tmp_path, {**results, "reward": 1.0})
    assert import_files([path]).table.action.texts() == ["8"]


def test_the_choice_of_the_state_prefers_what_recurs(tmp_path: Path):
    """A clock in every user message is removed; a word that varies leaves the results of tools."""

    def run(attempt: int, said: str) -> dict[str, Any]:
        call = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
        messages = [{"role": "user", "content": said.format("0", attempt)}]
        for number in range(4):
            messages += [
                {"role": "assistant", "content": "", "tool_calls": call},
                {"role": "tool", "content": f"part {number}", "tool_call_id": "c"},
                {"role": "user", "content": said.format(number, attempt)},
            ]
        return {"messages": messages, "task": "t", "reward": attempt % 2}

    words = lines(tmp_path, *(run(attempt, "Mood {0}{1}.") for attempt in range(4)), name="w.jsonl")
    imported = import_files([words])
    assert imported.alone == {"observation": 1.0, "tool": 0.25, "history": 1.0}
    assert imported.state == "tool"
    imported = import_files([lines(tmp_path, *(run(n, "It is 1{0}:3{1}.") for n in range(4)))])
    assert imported.alone == {"observation": 1.0, "cleaned": 0.0, "tool": 0.25, "history": 1.0}
    assert (imported.state, imported.chosen.key) == ("cleaned", StateKey(("times",)))
    assert "user: It is #." in imported.table.state.values
    assert import_files([tmp_path / "runs.jsonl"], state="history").state == "history"
    with pytest.raises(TableError, match="no keys of states"):
        import_files([tmp_path / "runs.jsonl"], state="key")


# Graphs, forks, rewritten histories.


def trace(nodes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    rewards = {"right": {"score": 1.0, "weight": 0.5}, "style": {"score": 1.0, "weight": 1.0}}
    fields = {"id": "t", "task": {"key": "k"}, "agent": {"name": "a"}, "rewards": rewards}
    return {"task": {"key": "k"}, "traces": [{**fields, "nodes": nodes, **more}]}


def node(parent: int | None, role: str, text: str, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": text}
    if role == "tool":
        message["tool_call_id"] = "c"
    return {"parent": parent, "message": message, "sampled": role == "assistant", **more}


FORK = [
    node(None, "user", "task"),
    node(0, "assistant", "plan", mask=[False, True, True]),
    node(1, "user", "go on"),
    node(2, "assistant", "one", mask=[True]),
    node(1, "user", "another way"),
    node(4, "assistant", "two", logprobs=[-1.0, -1.0, -1.0]),
]


def test_steps_that_two_paths_share_are_counted_once(tmp_path: Path):
    """Naively, each leaf is a conversation, and ``plan`` is a step in both of them."""
    table = import_files([lines(tmp_path, trace(FORK))]).table
    assert table.action.texts() == ["plan", "one", "two"]
    assert table.step.tolist() == [0, 1, 2]
    assert table.reward.tolist() == [0.0, 0.0, 1.5]


def test_credit_goes_back_onto_the_sampled_tokens(tmp_path: Path):
    path = lines(tmp_path, trace(FORK), trace(FORK[:4], id="u", rewards={"right": None}))
    out = tmp_path / "credited.jsonl.gz"
    imported = import_files([path])
    write_credit(path, imported, np.array([1.0, 2.0, 3.0]), out)
    first, second = map(json.loads, gzip.decompress(out.read_bytes()).splitlines())
    credit = [each.get("advantages") for each in first["traces"][0]["nodes"]]
    assert credit == [None, [1.0, 1.0], None, [2.0], None, [3.0, 3.0, 3.0]]
    credit = [each.get("advantages") for each in second["traces"][0]["nodes"]]
    assert credit == [None, None, None, None], "it has no reward, and is left out"
    for line, original in zip((first, second), path.read_text().splitlines(), strict=True):
        for each in line["traces"][0]["nodes"]:
            each.pop("advantages", None)
        assert line == json.loads(original)


@pytest.mark.parametrize("name", ["traces.jsonl", "rllm.jsonl"])
def test_written_credit_is_that_of_the_recipe(tmp_path: Path, name: str):
    imported = import_files([DATA / name])
    advantage = recipe("gigpo")(imported.table).advantage
    write_credit(DATA / name, imported, advantage, tmp_path / name)
    written: list[float] = []
    for line in (tmp_path / name).read_text().splitlines():
        row = json.loads(line)
        if name == "rllm.jsonl":
            written += [s["advantage"] for t in row["trajectories"] for s in t["steps"]]
        else:
            nodes = row["traces"][0]["nodes"]
            assert all(len(n["advantages"]) == sum(n["mask"]) for n in nodes if n["sampled"])
            written += [n["advantages"][0] for n in nodes if n["sampled"]]
    assert written == advantage.tolist()
    assert_attempts(import_files([tmp_path / name]))


def test_rllm_history_that_was_rewritten_begins_a_new_conversation(tmp_path: Path):
    chats = [
        [("user", "task"), ("assistant", "a")],
        [("user", "task"), ("assistant", "a"), ("user", "more"), ("assistant", "b")],
        [("user", "summary: a, b"), ("assistant", "c")],
    ]
    steps = [
        {"chat_completions": [{"role": r, "content": c} for r, c in one], "reward": 0.0}
        for one in chats
    ]
    episode = {
        "id": "k:0",
        "termination_reason": "max_turns_exceeded",
        "trajectories": [
            {"name": "solver", "reward": 1.0, "steps": steps},
            {"name": "judge", "reward": 0.5, "steps": steps[:1]},
        ],
    }
    path = tmp_path / "episode.json"
    path.write_text(json.dumps(episode))
    imported = import_files([path])
    table = imported.table
    assert table.action.texts() == ["a", "b", "c", "a"]
    assert table.step.tolist() == [0, 1, 2, 0]
    assert table.reward.tolist() == [0.0, 0.0, 1.0, 0.5]
    assert list(table.group.values) == ["k/judge", "k/solver"]
    assert table.flag("truncated", default=False).tolist() == [False, False, True, True]
    write_credit(path, imported, np.arange(4.0), tmp_path / "out.json")
    credited = json.loads((tmp_path / "out.json").read_text())["trajectories"]
    assert [s["advantage"] for t in credited for s in t["steps"]] == [0.0, 1.0, 2.0, 3.0]


def test_outputs_of_one_rollout_of_verl_are_steps_of_it(tmp_path: Path):
    rows = [
        {"input": f"state {k}", "output": f"act {k}", "gts": None, "score": float(k), "step": 3}
        | {"uid": f"ab_c_{rollout}_{k}"}
        for rollout in range(2)
        for k in range(3)
    ]
    table = import_files([lines(tmp_path, *rows)]).table
    assert table.step.tolist() == [0, 1, 2, 0, 1, 2]
    assert list(table.group.values) == ["3/ab_c"]
    assert list(table.trajectory.values) == ["3/ab_c/0", "3/ab_c/1"]
    assert table.reward.tolist() == [0.0, 1.0, 2.0] * 2
    assert table.flag("terminated", default=False).tolist() == [False, False, True] * 2


def test_limits_are_told_apart_from_ends(tmp_path: Path):
    cut = trace(
        FORK[:4], stop_condition="max_turns", calls=[{"node": 3, "finish_reason": "length"}]
    )
    imported = import_files([lines(tmp_path, cut)])
    assert imported.table.flag("truncated", default=False).tolist() == [False, True]
    assert imported.carried.column("finish").to_pylist() == ["stop", "length"]


# Hostile files.


@pytest.mark.parametrize(
    ("row", "where"),
    [
        (chat(reward="high"), "line 1, reward: it must be a number, not text"),
        (chat(reward=[1]), "line 1, reward: it must be a number, not a list"),
        (chat(reward=1, rewards=[1, 2]), "line 1: conversation .* has 2 rewards for 1 messages"),
        ({"messages": [7], "reward": 1}, r"line 1, messages\[0\]: it must be an object"),
        ({"messages": [{"content": "x"}]}, r"messages\[0\]: its role is None.*There are"),
        ({"messages": [{"role": "cook"}]}, "its role is 'cook'.*There are: system"),
        ({"messages": [{"role": "user", "content": 1}]}, "content: it must be text, not a number"),
        (trace([node(0, "user", "x")]), r"nodes\[0\].parent: it must be the number of an earlier"),
        (trace([node(None, "user", "x"), node(7, "user", "y")]), r"nodes\[1\].parent"),
        (trace([node(None, "user", "x"), node(-1, "user", "y")]), r"nodes\[1\].parent"),
        (trace([node(None, "user", "x"), node(True, "user", "y")]), r"nodes\[1\].parent"),
        ({"id": 1, "trajectories": []}, "line 1, id: it must be text, not a number"),
        ({"schema_version": "ATIF-v1.7", "steps": [{"source": "x"}]}, r"steps\[0\].source"),
        ({"input": "a", "output": "b", "score": None}, "score: it must be a number, not missing"),
        ({"_ng_task_index": 0, "response": {"output": "x"}}, "response.output: it must be a list"),
        ({"example_id": {}, "prompt": [], "completion": 3}, "completion: it must be a list"),
        ({"id": 1, "epoch": 1, "messages": [], "target": "", "scores": 3}, "scores: it must be an"),
    ],
)
def test_a_message_names_file_line_and_field(tmp_path: Path, row: Any, where: str):
    with pytest.raises(TableError, match=where) as caught:
        import_files([lines(tmp_path, row)])
    assert "runs.jsonl" in str(caught.value)
    assert caught.value.problems[0].kind is ProblemKind.BAD_RECORD


@pytest.mark.parametrize(
    "line",
    [
        '{"messages": [], "messages": []}',
        '{"messages": [], "reward": NaN}',
        '{"messages": [], "reward": 1e999}',
        '{"messages": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"messages": [',
        "\x00\xff",
    ],
)
def test_text_that_is_not_strict_json_is_refused(tmp_path: Path, line: str):
    path = tmp_path / "runs.jsonl"
    good = json.dumps(chat(reward=1))
    path.write_bytes(f"{good}\n{line}\n".encode("latin-1"))
    with pytest.raises(TableError, match=r"runs.jsonl, line 2: it is not JSON"):
        import_files([path])


def test_an_archive_that_expands_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The size in the directory of the archive is not believed."""
    monkeypatch.setattr("ascribe.sessions.reading.files.MAX_RECORD", 1000)
    bomb = tmp_path / "bomb.eval"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/a_epoch_1.json", " " * 100_000)
    packed = bomb.read_bytes()
    size = (100_000).to_bytes(4, "little")
    bomb.write_bytes(packed.replace(size, (10).to_bytes(4, "little")))
    with pytest.raises(TableError, match=r"bomb.eval"):
        import_files([bomb], form="inspect")
    bomb.write_bytes(packed)
    with pytest.raises(TableError, match="more than 1,000 bytes"):
        import_files([bomb], form="inspect")
    monkeypatch.setattr("ascribe.sessions.reading.files.MAX_RECORD", 10**6)
    monkeypatch.setattr("ascribe.sessions.reading.files.expansion_limit", lambda *_: 3000)
    with pytest.raises(TableError, match="it expands to more than 3,000 bytes"):
        import_files([DATA / "log.eval"])


def test_a_damaged_archive_is_refused(tmp_path: Path):
    path = tmp_path / "log.eval"
    content = (DATA / "log.eval").read_bytes()
    refused = 0
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            assert_attempts(import_files([path]))
        except TableError:
            refused += 1
    assert refused > 20
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(TableError, match="cannot be unpacked"):
        import_files([path])


def test_members_of_an_archive_are_no_paths(tmp_path: Path):
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("samples/../../../outside.json", "{}")
    with pytest.raises(TableError, match="stored in chunks"):
        import_files([path], form="inspect")
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_read_without_its_links(tmp_path: Path):
    folder = tmp_path / "runs"
    folder.mkdir()
    lines(folder, chat(reward=1))
    (folder / "notes.txt").write_text("not JSON")
    outside = lines(tmp_path, chat(reward=0), name="outside.jsonl")
    (folder / "link.jsonl").symlink_to(outside)
    imported = import_files([folder])
    assert len(imported.table) == 1
    assert imported.balance.sentence == (
        "1 session in 1 file; 2 files not read: a symbolic link (1), another kind of file (1)."
    )
    with pytest.raises(TableError, match="no session of a known format"):
        import_files([tmp_path], form="rllm")


def test_the_example_is_what_its_script_writes(tmp_path: Path):
    examples = DATA.parents[2] / "examples"
    script, out = examples / "conversations.py", tmp_path / "out.jsonl"
    subprocess.run([sys.executable, script, out], check=True)
    assert out.read_bytes() == (examples / "conversations.jsonl").read_bytes()


JUNK: tuple[Any, ...] = (
    *(None, True, -1, 3, 10**400, 0.5, "", "x", "\ud800", [], [[]], [None], {}, {"a": 1}),
    *({"role": "user"}, {"role": "assistant", "tool_calls": "x"}, "attachment://0", "{", "[1]"),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every object or list in a value, with each of its keys or indices."""
    found: list[tuple[Any, Any]] = []
    open_ = [value]
    while open_:
        node_ = open_.pop()
        keys = list(node_) if isinstance(node_, dict) else range(len(node_))
        found += [(node_, key) for key in keys]
        open_ += [node_[key] for key in keys if isinstance(node_[key], dict | list)]
    return found


@pytest.mark.parametrize(
    "name", [name for name in FILES if name not in ("log.eval", "chats.parquet")]
)
def test_a_damaged_value_is_refused_or_read_and_nothing_else_happens(tmp_path: Path, name: str):
    rng = Random(name)
    source = next((DATA / name).rglob("trajectory.json"), DATA / name)
    text = source.read_text()
    path = tmp_path / "trial" / "agent" / source.name
    path.parent.mkdir(parents=True)
    refused = 0
    for _ in range(60):
        rows = (
            [json.loads(text)]
            if path.suffix == ".json"
            else list(map(json.loads, text.split("\n")[:-1]))
        )
        for _ in range(rng.choice((1, 1, 3))):
            inside, key = rng.choice(places(rng.choice(rows)))
            inside[key] = rng.choice(JUNK)
        path.write_text("\n".join(map(json.dumps, rows)))
        try:
            imported = import_files([path], form=FILES[name])
            if formats()[imported.format].put:
                advantages = np.zeros(len(imported.table))
                write_credit(path, imported, advantages, tmp_path / "out.jsonl")
        except TableError:
            refused += 1
    assert refused > 10


def test_half_of_a_surrogate_pair_is_refused_with_its_line(tmp_path: Path):
    path = lines(tmp_path, chat("fine 😀", reward=1), chat("broken \ud800", reward=0))
    with pytest.raises(TableError, match=r"runs.jsonl, line 2: a text is not valid Unicode"):
        import_files([path])
    assert len(import_files([lines(tmp_path, chat("fine 😀", reward=1))]).table) == 1


def test_the_page_names_every_format():
    page = (DATA.parents[2] / "docs" / "import.md").read_text()
    named = set(re.findall(r"^\| .+? \| `([\w-]+)` \| ", page, re.M))
    assert named - {"cleaned"} >= formats().keys() - {"fields"}


def test_a_session_of_bfcl_that_crashed_has_no_response(tmp_path: Path):
    crashed = {"id": "t_0", "result": "Error during inference: 500", "traceback": "Traceback"}
    said = {"role": "assistant", "content": [{"ls": "{}"}]}
    lines = [crashed, {"id": "t_1", "result": [], "inference_log": [{"step_0": [said]}]}]
    path = tmp_path / "BFCL_v4_result.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    path.with_name("BFCL_v4_score.json").write_text('{"accuracy": 0.5}\n{"id": "t_0"}\n')
    imported = import_files([path])
    assert imported.format == "bfcl"
    assert imported.balance.crashed == 1
    assert imported.table.action.texts().count(None) == 1
    assert sorted(imported.table.reward.tolist()) == [0.0, 1.0]
