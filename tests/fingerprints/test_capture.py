"""What is captured is what a pass over the prompt alone gives, however it was batched."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.engines.capture import (
    Places,
    capture,
    decoder_blocks,
    packed,
    padded,
)

from .conftest import tiny

pytestmark = pytest.mark.unit

PROMPTS, RESPONSES = [5, 1, 9, 4], [3, 6, 1, 0]


# Where prompts end.


@pytest.mark.parametrize(
    "mask",
    [
        [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]],
        [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]],
        [[0, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
    ],
    ids=["right", "left", "both"],
)
def test_padded_counts_tokens_and_not_columns(mask: list[list[int]]) -> None:
    places = padded(mask, [2, 4])
    assert places.rows.tolist() == [0, 1]
    assert places.positions.tolist() == [mask[0].index(1) + 1, 3]
    assert places.shape == (2, 5)


def test_packed_counts_from_where_a_sequence_begins() -> None:
    places = packed([0, 3, 8, 9], [1, 5, 1])
    assert places.rows.tolist() == [0, 0, 0]
    assert places.positions.tolist() == [0, 7, 8]
    assert places.shape == (1, 9)
    assert packed([0, 3, 8, 9], [1, 5, 1], length=16).shape == (1, 16)


@given(st.data())
def test_padded_agrees_with_counting_by_hand(data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 8))
    row = st.lists(st.booleans(), min_size=width, max_size=width).filter(any)
    mask = data.draw(st.lists(row, min_size=1, max_size=4))
    lengths = [data.draw(st.integers(1, sum(row))) for row in mask]
    attended = [[i for i, there in enumerate(row) if there] for row in mask]
    expected = [tokens[n - 1] for tokens, n in zip(attended, lengths, strict=True)]
    assert padded(np.array(mask), lengths).positions.tolist() == expected


@pytest.mark.parametrize("length", [0, -1, 4])
def test_a_prompt_must_fit_its_sequence(length: int) -> None:
    with pytest.raises(ValueError, match=f"sequence 1 has 3 tokens, its prompt cannot .* {length}"):
        padded([[1, 1, 1], [1, 1, 1]], [2, length])
    with pytest.raises(ValueError, match=f"sequence 1 has 3 tokens, its prompt cannot .* {length}"):
        packed([0, 2, 5], [2, length])


def test_every_sequence_has_a_prompt_length() -> None:
    with pytest.raises(ValueError, match="1 prompt lengths for 2 sequences"):
        padded([[1, 1], [1, 1]], [1])
    with pytest.raises(ValueError, match="3 prompt lengths for 2 sequences"):
        packed([0, 2, 4], [1, 1, 1])


@pytest.mark.parametrize(("row", "position"), [(2, 0), (-1, 0), (0, 3), (0, -1)])
def test_places_outside_the_batch_are_refused(row: int, position: int) -> None:
    with pytest.raises(ValueError, match=r"lies outside a batch of shape \(2, 3\)"):
        Places(np.array([0, row]), np.array([0, position]), (2, 3))


def test_rows_and_positions_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="same length"):
        Places(np.array([0, 1]), np.array([0]), (2, 3))


# The same vector, however it was batched.


class Batch:
    """Random sequences in one layout: what the model is called with, and where prompts end."""

    def __init__(self, layout: str, vocabulary: int) -> None:
        import torch

        random = torch.Generator().manual_seed(1)
        lengths = [p + r for p, r in zip(PROMPTS, RESPONSES, strict=True)]
        self.sequences = [torch.randint(vocabulary, (n,), generator=random) for n in lengths]
        if layout == "packed":
            positions = torch.cat([torch.arange(n) for n in lengths])[None]
            self.inputs = {
                "input_ids": torch.cat(self.sequences)[None],
                "position_ids": positions,
            }
            self.places = packed(np.cumsum([0, *lengths]), PROMPTS)
            return
        widths = {"right": (0, 1), "left": (1, 0)}
        ids, masks = [], []
        for tokens, prompt in zip(self.sequences, PROMPTS, strict=True):
            gap = max(lengths) - len(tokens)
            left, right = (gap * side for side in widths.get(layout, (0, 0)))
            if layout == "both":
                left = max(PROMPTS) - prompt
                right = max(RESPONSES) - (len(tokens) - prompt)
            ids.append(torch.nn.functional.pad(tokens, (left, right), value=7))
            masks.append(torch.nn.functional.pad(torch.ones_like(tokens), (left, right)))
        mask = torch.stack(masks)
        self.inputs = {
            "input_ids": torch.stack(ids),
            "attention_mask": mask,
            "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0),
        }
        self.places = padded(mask, PROMPTS)

    def run(self, model: Any, **options: Any) -> Any:
        return model(**self.inputs, use_cache=False, **options)


def separate(model: Any, sequences: list[Any], layer: int) -> Any:
    """The paper's way: a pass over each prompt alone, with all hidden states."""
    import torch

    rows = []
    with torch.no_grad():
        for tokens, length in zip(sequences, PROMPTS, strict=True):
            states = model(tokens[None, :length], output_hidden_states=True).hidden_states
            rows.append(states[layer][0, -1].float())
    return torch.nn.functional.normalize(torch.stack(rows), dim=1)


LAYOUTS = pytest.mark.parametrize("layout", ["right", "left", "both", "packed"])


@LAYOUTS
@pytest.mark.parametrize("layer", [-2, -4])
def test_it_equals_a_pass_over_the_prompt_alone(model: Any, layout: str, layer: int) -> None:
    import torch

    batch = Batch(layout, 97)
    with torch.no_grad(), capture(model, layer) as hidden:
        hidden.expect(batch.places)
        batch.run(model)
    found = hidden.fingerprints()
    assert found.shape == (4, 64)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, separate(model, batch.sequences, layer), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(4), atol=1e-6, rtol=0)


@LAYOUTS
@pytest.mark.parametrize("layer", range(4))
def test_it_equals_the_hidden_states_of_the_same_pass(model: Any, layout: str, layer: int) -> None:
    import torch

    # The last of transformers' hidden states has gone through the final norm; no block's has.
    decoder_blocks(model)[0].norm = torch.nn.Identity()
    batch = Batch(layout, 97)
    with torch.no_grad(), capture(model, layer, normalise=False) as hidden:
        hidden.expect(batch.places)
        states = batch.run(model, output_hidden_states=True).hidden_states[layer + 1]
    assert torch.equal(hidden.fingerprints(), states[batch.places.rows, batch.places.positions])


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "mistral", "gemma2", "gpt2"])
def test_other_families(kind: str) -> None:
    model = tiny(kind)
    import torch

    batch = Batch("right", 97)
    with torch.no_grad(), capture(model, -2) as hidden:
        hidden.expect(batch.places)
        batch.run(model)
    expected = separate(model, batch.sequences, -2)
    torch.testing.assert_close(hidden.fingerprints(), expected, atol=1e-5, rtol=0)


def test_a_layer_counts_blocks_from_either_end(model: Any) -> None:
    import torch

    batch = Batch("right", 97)
    with torch.no_grad(), capture(model, 2) as front, capture(model, -2) as back:
        front.expect(batch.places)
        back.expect(batch.places)
        batch.run(model)
    assert torch.equal(front.fingerprints(), back.fingerprints())


# In the trainer's circumstances.


def captured(model: Any, batch: Batch) -> Any:
    import torch

    with torch.no_grad(), capture(model, -2) as hidden:
        hidden.expect(batch.places)
        batch.run(model)
    return hidden.fingerprints()


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_counts_once(model: Any, reentrant: bool) -> None:
    import torch

    batch = Batch("right", 97)
    expected = captured(model, batch)
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    runs = []
    blocks = decoder_blocks(model)[1]
    counter = blocks[-2].register_forward_hook(lambda *_: runs.append(1))
    # Left to itself, torch stops before the hooks where nothing after them needs a gradient.
    with capture(model, -2) as hidden, torch.utils.checkpoint.set_checkpoint_early_stop(False):
        for _ in range(2):
            hidden.expect(batch.places)
            batch.run(model).logits.sum().backward()
    counter.remove()
    assert len(runs) == 4, "the block must really have been run again"
    assert torch.equal(hidden.fingerprints(), torch.cat([expected, expected]))
    assert model.lm_head.weight.grad is not None


def test_training_is_left_alone(model: Any) -> None:
    import torch

    batch, other = Batch("right", 97), copy.deepcopy(model)
    with capture(model, -2) as hidden:
        hidden.expect(batch.places)
        batch.run(model).logits.square().mean().backward()
    batch.run(other).logits.square().mean().backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)
    assert not hidden.fingerprints().requires_grad


def test_autocast(model: Any) -> None:
    import torch

    batch = Batch("right", 97)
    with (
        torch.no_grad(),
        torch.autocast("cpu", dtype=torch.bfloat16),
        capture(model, -2) as hidden,
    ):
        hidden.expect(batch.places)
        states = batch.run(model, output_hidden_states=True).hidden_states[-2]
    wanted = states[batch.places.rows, batch.places.positions].float()
    wanted = torch.nn.functional.normalize(wanted, dim=1)
    found = hidden.fingerprints()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    # Half precision is coarse, but it is the same state.
    assert (found * captured(model, batch)).sum(dim=1).min() > 0.999


def test_inference_mode(model: Any) -> None:
    import torch

    batch = Batch("right", 97)
    with torch.inference_mode(), capture(model, -2) as hidden:
        hidden.expect(batch.places)
        batch.run(model)
    assert torch.equal(hidden.fingerprints(), captured(model, batch))


@pytest.mark.parametrize("ahead", [False, True])
def test_micro_batches_come_in_the_order_of_calls(model: Any, ahead: bool) -> None:
    import torch

    batch = Batch("right", 97)
    mask = batch.inputs["attention_mask"]
    parts = [slice(0, 2), slice(2, 3), slice(3, 4)]
    places = [padded(mask[part], PROMPTS[part]) for part in parts]
    with torch.no_grad(), capture(model, -2) as hidden:
        if ahead:
            for place in places:
                hidden.expect(place)
        for part, place in zip(parts, places, strict=True):
            if not ahead:
                hidden.expect(place)
            model(**{name: value[part] for name, value in batch.inputs.items()})
    expected = captured(model, batch)
    torch.testing.assert_close(hidden.fingerprints(), expected, atol=1e-6, rtol=0)


def test_half_precision_keeps_half_the_bytes(model: Any) -> None:
    import torch

    batch = Batch("right", 97)
    with torch.no_grad(), capture(model, -2, dtype=torch.float16, device="cpu") as hidden:
        hidden.expect(batch.places)
        batch.run(model)
    found = hidden.fingerprints()
    assert found.dtype == torch.float16
    assert found.nbytes == 4 * 64 * 2
    torch.testing.assert_close(found.float(), captured(model, batch), atol=1e-3, rtol=0)


def test_only_the_wanted_places_are_kept(model: Any) -> None:
    import torch

    batch = Batch("right", 97)
    with torch.no_grad(), capture(model, -2) as hidden:
        hidden.expect(Places(np.array([2, 0, 2]), np.array([8, 4, 8]), batch.places.shape))
        batch.run(model)
    found = hidden.fingerprints()
    assert torch.equal(found, captured(model, batch)[[2, 0, 2]])
    # A view would keep the hidden states of the whole batch alive.
    assert found.untyped_storage().nbytes() == found.nbytes


def test_a_pass_that_failed_can_be_tried_again(model: Any) -> None:
    import torch

    batch = Batch("right", 97)
    broken = decoder_blocks(model)[1][-1].register_forward_hook(fail)
    with torch.no_grad(), capture(model, -2) as hidden:
        hidden.expect(batch.places)
        with pytest.raises(MemoryError):
            batch.run(model)
        broken.remove()
        batch.run(model)
    assert torch.equal(hidden.fingerprints(), captured(model, batch))


def fail(*_: Any) -> None:
    raise MemoryError


def test_the_trainer_of_the_page(model: Any) -> None:
    import torch

    page = Path(__file__).parents[2] / "docs" / "fingerprints.md"
    code = next(
        block
        for block in re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        if "capture(model" in block
    )
    batch = Batch("right", 97)
    names = {
        "torch": torch,
        "model": model,
        "batches": [batch.inputs | {"prompt_lengths": PROMPTS}] * 2,
    }
    exec(compile(code.replace("layer=-8", "layer=-2"), "page", "exec"), names)
    expected = captured(model, batch)
    torch.testing.assert_close(
        names["fingerprints"], torch.cat([expected, expected]), atol=1e-6, rtol=0
    )


# Wrapped models.


@pytest.fixture
def process_group() -> Iterator[None]:
    distributed = pytest.importorskip("torch.distributed", reason="needs the extra actor")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_a_model_wrapped_for_data_parallel_training(model: Any) -> None:
    import torch

    batch = Batch("right", 97)
    expected = captured(model, batch)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    with capture(wrapped, -2) as hidden:
        hidden.expect(batch.places)
        batch.run(wrapped).logits.sum().backward()
    assert torch.equal(hidden.fingerprints(), expected)


@pytest.mark.usefixtures("process_group")
@pytest.mark.filterwarnings("ignore:.*FSDP.*:UserWarning")
def test_a_fully_sharded_model(model: Any) -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    batch = Batch("right", 97)
    expected = captured(model, batch)
    mesh = init_device_mesh("cpu", (1,))
    for block in decoder_blocks(model)[1]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    with capture(model, -2) as hidden:
        hidden.expect(batch.places)
        batch.run(model).logits.sum().backward()
    assert torch.equal(hidden.fingerprints(), expected)


@pytest.fixture
def dynamo() -> Iterator[Any]:
    dynamo = pytest.importorskip("torch._dynamo", reason="needs the extra actor")
    dynamo.reset()
    yield dynamo
    dynamo.reset()


@pytest.mark.slow
def test_a_compiled_model(model: Any, dynamo: Any) -> None:
    import torch

    batch = Batch("right", 97)
    expected = captured(model, batch)
    compiled = torch.compile(model, backend="eager")
    with dynamo.config.patch(skip_nnmodule_hook_guards=False):
        for _ in range(2):
            with torch.no_grad():
                batch.run(compiled)
            torch.testing.assert_close(captured(compiled, batch), expected, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_a_compiled_model_that_does_not_look_for_new_hooks(model: Any, dynamo: Any) -> None:
    import torch

    batch = Batch("right", 97)
    compiled = torch.compile(model, backend="eager")
    with dynamo.config.patch(skip_nnmodule_hook_guards=True):
        with torch.no_grad():
            batch.run(compiled)
        with pytest.raises(RuntimeError, match=r"hooks did not run .*skip_nnmodule_hook_guards"):
            captured(compiled, batch)


def test_blocks_are_found_inside_adapters(model: Any) -> None:
    import torch

    class Adapter(torch.nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base_model = torch.nn.Module()
            self.base_model.model = base
            self.alias = base
            # A list of another length is not the blocks, nor is one inside of them.
            self.heads = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(3)])

    blocks = model.model.layers
    blocks[0].experts = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(4)])
    assert decoder_blocks(Adapter(model)) == (model.model, blocks)


def test_two_lists_that_might_be_the_blocks_are_an_error(model: Any) -> None:
    import torch

    model.tower = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(4)])
    with pytest.raises(ValueError, match=r"one list of 4 decoder blocks.*model\.layers, tower"):
        decoder_blocks(model)
    assert decoder_blocks(model.model) == (model.model, model.model.layers)


def test_no_list_that_might_be_the_blocks_is_an_error(model: Any) -> None:
    import torch

    model.model.layers = model.model.layers[:3]
    with pytest.raises(ValueError, match=r"one list of 4 decoder blocks.*found: none"):
        decoder_blocks(model)
    with pytest.raises(ValueError, match="no configuration"):
        decoder_blocks(torch.nn.Linear(2, 2))


# Errors are loud.


@pytest.mark.parametrize("layer", [4, -5])
def test_a_layer_that_is_not_there(model: Any, layer: int) -> None:
    with (
        pytest.raises(IndexError, match=f"layer {layer} of a model with 4 decoder blocks"),
        capture(model, layer),
    ):
        pass


def test_a_pass_that_nothing_was_expected_of(model: Any) -> None:
    batch = Batch("right", 97)
    with capture(model, -2) as hidden:
        hidden.expect(batch.places)
        batch.run(model)
        with pytest.raises(RuntimeError, match=r"call expect\(\)"):
            batch.run(model)


def test_an_expected_pass_that_did_not_come(model: Any) -> None:
    batch = Batch("right", 97)
    with (
        pytest.raises(RuntimeError, match="1 announced passes did not happen"),
        capture(model, -2) as hidden,
    ):
        hidden.expect(batch.places)


def test_an_error_inside_is_not_hidden_by_passes_that_did_not_come(model: Any) -> None:
    def interrupted() -> None:
        with capture(model, -2) as hidden:
            hidden.expect(Batch("right", 97).places)
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()


def test_another_batch_than_was_expected(model: Any) -> None:
    batch = Batch("right", 97)
    half = {name: value[:, :5] for name, value in batch.inputs.items()}
    with capture(model, -2) as hidden:
        hidden.expect(batch.places)
        with pytest.raises(ValueError, match=r"shape \(4, 10\).*have \(4, 5\)"):
            model(**half)
        batch.run(model)


def test_nothing_captured(model: Any) -> None:
    with capture(model, -2) as hidden:
        pass
    with pytest.raises(RuntimeError, match="no forward pass"):
        hidden.fingerprints()


def test_a_block_that_does_not_run(model: Any) -> None:
    batch = Batch("right", 97)
    with capture(model, -1) as hidden:
        hidden.expect(batch.places)
        model.config.num_hidden_layers = 3
        with pytest.raises(RuntimeError, match="did not run"):
            batch.run(model)
        model.config.num_hidden_layers = 4
        batch.run(model)


def test_a_block_that_runs_twice(model: Any) -> None:
    batch = Batch("right", 97)
    blocks = model.model.layers
    blocks[1] = blocks[2]
    with capture(model, 2) as hidden:
        hidden.expect(batch.places)
        with pytest.raises(RuntimeError, match="twice"):
            batch.run(model)
        blocks[1] = blocks[0]
        batch.run(model)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_vectors_without_a_direction(model: Any, value: float) -> None:
    batch = Batch("right", 97)
    spoil = model.model.layers[-2].register_forward_hook(lambda *parts: parts[-1] * 0 + value)
    with capture(model, -2) as hidden:
        hidden.expect(batch.places)
        batch.run(model)
    spoil.remove()
    with pytest.raises(ValueError, match=r"rows \[0, 1, 2, 3\] hold numbers that are not finite"):
        hidden.fingerprints()


def test_hooks_are_removed(model: Any) -> None:
    batch = Batch("right", 97)
    with pytest.raises(RuntimeError), capture(model, -2):
        batch.run(model)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
