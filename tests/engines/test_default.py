"""One default recipe everywhere; in trainers it has the size of GRPO's advantages."""

import inspect
from typing import Any

import numpy as np
import pytest

from ascribe.cli import credit as credit_command
from ascribe.engines import training_recipe
from ascribe.engines.adapters import credit_batch, stateless
from ascribe.estimators import DEFAULT, recipe
from ascribe.estimators.assign import assign
from tests.estimators.golden import THREE_WAYS, table

pytestmark = pytest.mark.unit


def default(function: Any, name: str) -> object:
    return inspect.signature(function).parameters[name].default


def test_commands_and_adapters_have_the_same_default() -> None:
    assert DEFAULT == "sbc"
    assert default(assign, "recipe") == default(credit_command.credit, "recipe") == DEFAULT
    assert default(credit_batch, "method") == DEFAULT


@pytest.mark.engine
def test_the_trainer_of_trl_has_it_too() -> None:
    pytest.importorskip("trl", reason="needs the extra trl")
    from ascribe.engines.trl.trainer import AscribeTrainer

    assert default(AscribeTrainer, "recipe") == DEFAULT


def test_files_get_the_plain_form_and_trainers_that_of_equal_size() -> None:
    """The plain form can be credited group by group; a trainer's batch is whole anyway."""
    assert recipe(DEFAULT).by_group
    for method in (training_recipe(), stateless(DEFAULT)):
        assert method == recipe(DEFAULT, scale="equal")
    by_grpo, by_default = (training_recipe(name)(table(THREE_WAYS)) for name in ("grpo", DEFAULT))
    sizes = [np.sqrt(np.mean(each.advantage**2)) for each in (by_grpo, by_default)]
    assert sizes[0] == pytest.approx(sizes[1])


def test_what_is_said_is_kept() -> None:
    plain = recipe(DEFAULT)
    assert training_recipe(plain) is plain
    assert training_recipe(DEFAULT, scale="paper") == plain
    assert training_recipe("gigpo") == recipe("gigpo")
    assert training_recipe(DEFAULT, "exact").states == "exact"  # type: ignore[attr-defined]
