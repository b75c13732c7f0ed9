"""verl's commands with credit for steps: what is changed in the process that runs the trainer.

verl's own commands pass a task runner to ``run_ppo``, which runs it in a Ray actor. The runners
here do what verl's do, with a trainer of ours in place of verl's.

Worker processes load the modules that ``actor_rollout_ref.model.external_lib`` names. This is how
agent loops record their tool calls, and how engines give fingerprints.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import ray
from omegaconf import OmegaConf, open_dict
from verl.experimental.fully_async_policy import fully_async_main
from verl.experimental.one_step_off_policy import main_ppo as one_step_off_main
from verl.trainer import main_ppo as ppo_main
from verl.utils.import_utils import import_external_libs

from ascribe.engines.verl.names import class_of
from ascribe.steps.errors import InputError

WORKERS = "ascribe.engines.verl.workers"
"""What worker processes load."""


def with_workers(config: Any) -> Any:
    """The configuration, by which every process loads ``WORKERS`` too; this one does so now.

    Modules that the user names are kept.
    """
    model = config.actor_rollout_ref.model
    given = OmegaConf.to_container(OmegaConf.create({"libs": model.get("external_lib")}))["libs"]
    libs = [*([given] if isinstance(given, str) else given or []), WORKERS]
    with open_dict(model):
        model.external_lib = libs
    import_external_libs(libs)
    return config


class CreditRunner(class_of(ppo_main.TaskRunnerV1)):  # type: ignore[misc]
    """Runs verl's trainer of the configured mode, with credit for steps."""

    trainers = "ascribe.engines.verl.trainer"
    """The module that registers the trainers."""
    prefix = "ascribe_"
    """Of their names."""

    def run(self, config: Any) -> None:
        """As verl's."""
        with open_dict(config):
            config.trainer.v1.trainer_mode = f"{self.prefix}{config.trainer.v1.trainer_mode}"
        import_module(self.trainers)
        super().run(with_workers(config))


class OneStepOffRunner(class_of(one_step_off_main.OneStepTaskRunner)):  # type: ignore[misc]
    """Runs verl's trainer that is one step off the policy, with credit for steps."""

    def run(self, config: Any) -> None:
        """As verl's."""
        from ascribe.engines.verl.separate import OneStepOffTrainer

        one_step_off_main.OneStepOffRayTrainer = OneStepOffTrainer
        super().run(with_workers(config))


class Rollouter(class_of(fully_async_main.FullyAsyncRollouter)):  # type: ignore[misc]
    """verl's, in a process that loads ``external_lib`` before it looks for its servers."""

    def __init__(self, config: Any, **options: Any) -> None:
        import_external_libs(list(config.actor_rollout_ref.model.external_lib))
        super().__init__(config, **options)


class FullyAsyncRunner(class_of(fully_async_main.FullyAsyncTaskRunner)):  # type: ignore[misc]
    """Runs verl's fully asynchronous trainer, with credit for steps."""

    def run(self, config: Any) -> None:
        """As verl's."""
        from ascribe.engines.verl.separate import FullyAsyncTrainer

        # Each as verl's own.
        fully_async_main.FullyAsyncTrainer = ray.remote(num_cpus=10)(FullyAsyncTrainer)
        rollouter = ray.remote(num_cpus=10, max_concurrency=100)(Rollouter)
        fully_async_main.FullyAsyncRollouter = rollouter
        super().run(with_workers(config))


# The commands: verl's own, with another runner.


def main_ppo(runner: Any = CreditRunner) -> None:
    """``python -m verl.trainer.main_ppo``."""
    run = ppo_main.run_ppo

    def run_ppo(config: Any, task_runner_class: Any) -> None:  # noqa: ARG001 (verl passes it)
        if not config.trainer.use_v1:
            raise InputError(
                "trainer.use_v1: verl's older trainer gives no credit for steps",
                hint="set it to True",
            )
        run(config, task_runner_class=ray.remote(runner))

    ppo_main.run_ppo = run_ppo
    ppo_main.main()


def one_step_off() -> None:
    """``python -m verl.experimental.one_step_off_policy.main_ppo``."""
    runner = ray.remote(num_cpus=10, max_concurrency=100)(OneStepOffRunner)  # as verl's
    one_step_off_main.OneStepTaskRunner = runner
    _find_config(one_step_off_main)
    if not any(word.startswith("hydra.searchpath") for word in sys.argv):
        # verl names it relative to its repository, from where its own command must be typed.
        sys.argv.append("hydra.searchpath=[pkg://verl.trainer.config]")
    one_step_off_main.main()


def fully_async() -> None:
    """``python -m verl.experimental.fully_async_policy.fully_async_main``."""
    fully_async_main.FullyAsyncTaskRunner = ray.remote(num_cpus=1)(FullyAsyncRunner)
    _find_config(fully_async_main)
    fully_async_main.main()


def _find_config(command: Any) -> None:
    """Tell Hydra the folder of a command's configuration, which is no Python package."""
    sys.argv[1:1] = ["--config-path", str(Path(command.__file__).with_name("config"))]
