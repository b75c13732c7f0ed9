"""What becomes of verl's options, against its own classes."""

import os

import pytest

from ascribe.engines.verl.options import OPTIONS
from tests.engines.needs import NEEDS_VERL
from tests.engines.option_lists import check_lists

os.environ.setdefault("VERL_PLATFORM", "cpu")
pytestmark = [pytest.mark.engine, NEEDS_VERL, pytest.mark.filterwarnings("ignore")]


def test_every_option_of_verl_has_an_answer() -> None:
    check_lists(OPTIONS)


def test_every_name_is_a_key_of_verls_own_configuration() -> None:
    """A prefix that is wrong would let everything pass."""
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    for options in OPTIONS:
        section = OmegaConf.select(config, options.prefix.rstrip("."))
        assert section is not None, options.prefix
        optional = {"gdpo_reward_keys", "gdpo_reward_weights"}
        assert set(options.refused) - optional <= set(section), options.prefix
