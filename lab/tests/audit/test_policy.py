"""The audit of a real policy: its gradients, the comparison, and a run from end to end."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from typer.testing import CliRunner

from ascribe import StepTable
from ascribe.steps.table import Coded
from ascribe_lab.audit.kept import PlayedBatch
from ascribe_lab.audit.policy import REFERENCES, compare, kept_batches, policy_lines
from ascribe_lab.audit.run import scored_recipe
from ascribe_lab.audit.scores import POOLED
from ascribe_lab.models.policy import Sample
from tests.strategies import step_tables

pytestmark = pytest.mark.unit


def batch(steps: StepTable, tokens: int = 3, seed: int = 0) -> PlayedBatch:
    """Tokens of every step with random hidden states."""
    random = np.random.default_rng(seed)
    hidden, residual = (random.normal(size=(len(steps) * tokens, n)) for n in (4, 5))
    return PlayedBatch(steps, hidden, residual, np.repeat(np.arange(len(steps)), tokens), 0.25)


@given(step_tables())
def test_a_batch_comes_back_from_its_file(steps: StepTable) -> None:
    played = batch(replace(steps, fingerprint=np.eye(len(steps), 3)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batch.npz"
        played.save(path)
        again = PlayedBatch.load(path)
    for name, column in played.table.columns().items():
        stored = getattr(again.table, name)
        if name == "fingerprint":
            np.testing.assert_array_equal(stored, column)
        elif isinstance(column, Coded):
            assert stored.texts() == column.texts()
        else:
            np.testing.assert_array_equal(stored, column)
    recipes = [scored_recipe("grpo"), scored_recipe("returns")]
    ours, theirs = played.gradients(recipes), again.gradients(recipes)
    np.testing.assert_allclose(ours, theirs, atol=0.01 * np.abs(ours).max(initial=1e-3))


def test_row_gradients_are_those_of_autograd() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra actor")
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 3, generator=generator, requires_grad=True)
    hidden = torch.randn(6, 3, generator=generator)
    tokens, owner = torch.tensor([0, 4, 4, 1, 2, 0]), np.array([0, 0, 1, 2, 2, 2])
    logp = (hidden @ weight.T).log_softmax(-1)
    residual = (torch.eye(5)[tokens] - logp.detach().exp())[:, :4]  # the last one has no gradient
    steps = StepTable.from_columns(
        {"group": ["g"] * 3, "trajectory": ["t"] * 3, "step": range(3), "state": ["s"] * 3}
        | {"action": ["a"] * 3, "reward": [0.0] * 3}
    )
    rows = PlayedBatch(steps, hidden.numpy(), residual.numpy(), owner, 0.0).row_gradients()
    for row in range(3):
        chosen = logp[torch.arange(6), tokens][torch.from_numpy(owner == row)].sum()
        (wanted,) = torch.autograd.grad(chosen, weight, retain_graph=True)
        np.testing.assert_allclose(rows[row].reshape(4, 3), wanted[:4], rtol=1e-4, atol=1e-5)


def test_samples_are_read_as_if_each_were_alone(tmp_path: Path) -> None:
    """Whatever they share with others: a prefix, all of it, or nothing."""
    torch = pytest.importorskip("torch", reason="needs the extra actor")
    transformers = pytest.importorskip("transformers", reason="needs the extra actor")
    from ascribe_lab.audit.policy import _Reader

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=20, num_hidden_layers=3, **sizes)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    prompts = [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 9), (1, 2, 9), (7,), (1, 2, 3, 4, 5, 6)]
    responses = [(3, 5), (3, 5), (8,), (4, 4, 4), (1, 0), (2,)]
    samples = [
        Sample("", prompt_ids=prompt, response_ids=response)
        for prompt, response in zip(prompts, responses, strict=True)
    ]
    fingerprint, hidden, residual, owner = _Reader(model, -2, tmp_path / "t").read(samples, 2)
    assert owner.tolist() == [0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 5]
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        with torch.inference_mode():
            ids = torch.tensor([[*prompt, *response]])
            out = model(ids, output_hidden_states=True)
        at = slice(len(prompt) - 1, ids.shape[1] - 1)
        wanted = torch.eye(20)[list(response)] - out.logits[0, at].softmax(-1)
        close = {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(residual[owner == row], wanted, **close)
        np.testing.assert_allclose(hidden[owner == row], out.hidden_states[-1][0, at], **close)
        np.testing.assert_allclose(fingerprint[row], out.hidden_states[2][0, at.start], **close)


NAMES = ("biased", *REFERENCES.values())


def gradients(number: int) -> tuple[np.ndarray, float]:
    """One recipe is turned by 60 degrees; the references have noise."""
    random = np.random.default_rng(number)
    truth = np.zeros((3, 50))
    truth[:, 0] = 1.0
    truth[0, :2] = 0.5, np.sqrt(0.75)
    return (truth + 0.1 * random.normal(size=truth.shape)).astype(np.float32), 0.5


def test_bias_and_noise_are_told_apart() -> None:
    found = compare([gradients(number) for number in range(200)], NAMES)
    for objective, reference in REFERENCES.items():
        scores = found.scores[objective]
        assert scores["biased"].mean == pytest.approx(0.5, abs=0.02)
        assert scores["biased"].update == pytest.approx(0.5 / np.sqrt(1 + 0.5 / POOLED), abs=0.02)
        assert scores[reference].mean == pytest.approx(1.0, abs=0.02)
        assert scores[reference].batch.value == pytest.approx(1 / np.sqrt(1.5), abs=0.02)
        assert scores[reference].variance == pytest.approx(50 * 0.01, abs=0.05)
        assert found.precision[objective] > 0.98
    lines = list(policy_lines(found))
    assert {"bench", "case", "metric", "value", "unit", "goal", "better"} <= set(lines[-1])


def test_a_batch_without_a_signal_counts_as_zero() -> None:
    batches = [gradients(number) for number in range(8)]
    batches[3][0][:] = 0.0
    found = compare(batches, NAMES)
    for scores in found.scores.values():
        assert all(score.cosines[3] == 0.0 for score in scores.values())
        assert all(np.isfinite(score.batch.value) for score in scores.values())


def test_batches_without_a_signal_are_refused() -> None:
    silent = [(np.zeros((3, 4), np.float32), 0.0)] * 4
    with pytest.raises(ValueError, match="no gradient of discounted"):
        compare(silent, NAMES)


def test_a_stopped_run_goes_on_and_a_new_recipe_plays_nothing(tmp_path: Path) -> None:
    played = []
    steps = StepTable.from_columns(
        {
            "group": ["g"] * 4,
            "trajectory": list("aabb"),
            "step": [0, 1, 0, 1],
            "state": list("stst"),
        }
        | {"action": list("xyzw"), "reward": [0.0, 1.0, 0.0, 0.0]}
    )

    def play(number: int) -> PlayedBatch:
        played.append(number)
        return batch(steps, seed=number)

    recipes = {"grpo": scored_recipe("grpo")}
    kept_batches(tmp_path, 2, play, recipes)
    batches = kept_batches(tmp_path, 4, play, recipes)
    assert played == [0, 1, 2, 3]
    more = recipes | {"returns": scored_recipe("returns")}
    both = kept_batches(tmp_path, 4, play, more)
    assert played == [0, 1, 2, 3]
    np.testing.assert_array_equal(batches[1][0][0], both[1][0][0])
    wanted = PlayedBatch.load(tmp_path / "batch_0001.npz").gradients([scored_recipe("returns")])
    np.testing.assert_allclose(both[1][0][1], wanted[0], rtol=1e-5)
    assert both[1][1] == 0.25


@pytest.mark.slow
@pytest.mark.nightly  # it trains a model
def test_the_command_audits_a_model_folder(tmp_path: Path) -> None:
    """The command of ``experiments.audit_policy.audit_policy_smollm2``, with a smaller model."""
    for package in ("torch", "transformers", "minecraft_data"):
        pytest.importorskip(package, reason="needs the extras actor and textcraft")
    import typer

    from ascribe_lab.cli.audit import audit
    from lab.tests.craft_model import OPTIONS, write_tiny

    folder = write_tiny(tmp_path / "tiny")
    app = typer.Typer()
    app.command()(audit)
    options = [word for k, v in OPTIONS.items() for word in ("--set", f"{k}={json.dumps(v)}")]
    options += ["--style", "plain", "--groups", "2", "--size", "6", "--batches", "4"]
    options += ["--max-turns", "4", "--max-tokens", "32", "--work", str(tmp_path / "work")]
    options += ["--decisions", "4"]
    run = ["--env", "textcraft", "--model", str(folder), *options, "--json"]
    result = CliRunner().invoke(app, run)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    scored = {line["case"] for line in lines}
    assert {"discounted/grpo", "success/sbc", "success/gigpo_mean_random"} <= scored
    assert np.isfinite([line["value"] for line in lines]).all()
    assert {"decision_cosine", "update_cosine"} <= {line["metric"] for line in lines}
    assert len(list((tmp_path / "work").glob("batch_*.npz"))) == 4
    again = CliRunner().invoke(app, run)
    assert again.stdout == result.stdout
