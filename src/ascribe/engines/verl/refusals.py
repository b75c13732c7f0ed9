"""What a run on verl cannot do with Ascribe, said before it begins."""

from typing import Any

from omegaconf import OmegaConf

from ascribe.engines.train import Run


def refuse(config: Any, run: Run) -> None:
    """Refuse settings that would be without effect, or give a wrong update.

    Args:
        config: verl's whole configuration.
        run: the run.

    Raises:
        ValueError: with verl's key, and what to set.
    """
    algorithm, rollout = config.algorithm, config.actor_rollout_ref.rollout
    size = run.config.rollout.size
    wrong = {
        f"algorithm.adv_estimator: {algorithm.adv_estimator}; with trainer_mode=ascribe it must be "
        "ascribe": algorithm.adv_estimator != "ascribe",
        "algorithm.use_kl_in_reward: rewards are the environment's; use actor.use_kl_loss": bool(
            algorithm.use_kl_in_reward
        ),
        f"actor_rollout_ref.rollout.n: {rollout.n}, and rollout.size of the run is {size}": (
            int(rollout.n) != size
        ),
        f"data.train_batch_size: {config.data.train_batch_size}, and rollout.groups of the run is "
        f"{run.config.rollout.groups}": (
            int(config.data.train_batch_size) != run.config.rollout.groups
        ),
        "data.shuffle: the tasks are drawn already, in an order that a resumed run must find "
        "again; set it to False": bool(config.data.shuffle),
        "trainer.test_freq and trainer.val_before_train: there is no validation here; use ascribe "
        "eval on a checkpoint": config.trainer.test_freq > 0 or config.trainer.val_before_train,
        "critic.enable: the baseline is the recipe's; a critic would learn for nothing": bool(
            OmegaConf.select(config, "critic.enable")
        ),
        "ulysses_sequence_parallel_size: fingerprints need whole sequences; set it to 1": (
            run.layer is not None and _sequence_parallel(config) > 1
        ),
        "actor_rollout_ref.rollout.max_model_len: must be given": rollout.max_model_len is None,
        "algorithm.rollout_correction.bypass_mode: fingerprints come from the pass that it leaves "
        "out": run.layer is not None and _bypasses(algorithm),
    }
    found = [why for why, is_so in wrong.items() if is_so]
    if found:
        raise ValueError("\n".join(found))


def _sequence_parallel(config: Any) -> int:
    """Ranks that share a sequence, by verl's key or by its older name."""
    places = ("actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.actor")
    names = [f"{place}.ulysses_sequence_parallel_size" for place in places]
    return max(int(OmegaConf.select(config, name, default=1)) for name in names)


def _bypasses(algorithm: Any) -> bool:
    correction = algorithm.get("rollout_correction", None)
    return bool(correction and correction.get("bypass_mode", False))
