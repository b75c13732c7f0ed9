"""What becomes of verl's options that act on rewards or advantages.

``loops`` refuses what these lists refuse, and what depends on several keys.
"""

from collections.abc import Iterator
from typing import Any

from ascribe.engines.options import Options, Refused

ACTOR = "actor_rollout_ref.actor."

_ESTIMATORS = "verl's own estimators alone read it"
_PARAMETER = "leave it out, and set a parameter of the recipe, as in ascribe.gamma"
_SHUFFLE = Refused(
    (False,), "rows are dealt to minibatches so that each has its share of those that count"
)

OPTIONS = (
    Options(
        source="verl.trainer.config.AlgoConfig",
        prefix="algorithm.",
        no_effect={
            "kl_penalty": "it belongs to use_kl_in_reward",
            "kl_ctrl": "it belongs to use_kl_in_reward",
            "pf_ppo": "it belongs to use_pf_ppo",
        },
        refused={
            "adv_estimator": Refused(("ascribe",), "it would take the place of the recipe"),
            "gamma": Refused((1.0,), _ESTIMATORS, _PARAMETER),
            "lam": Refused((1.0,), _ESTIMATORS, _PARAMETER),
            "norm_adv_by_std_in_grpo": Refused((True,), _ESTIMATORS, _PARAMETER),
            "gdpo_reward_keys": Refused((None,), _ESTIMATORS),
            "gdpo_reward_weights": Refused((None,), _ESTIMATORS),
            "use_pf_ppo": Refused((False,), _ESTIMATORS),
            "use_kl_in_reward": Refused(
                (False,), "rewards are the environment's", "use actor.use_kl_loss"
            ),
        },
    ),
    Options(
        source="verl.trainer.config.FilterGroupsConfig",
        prefix="algorithm.filter_groups.",
        applied={
            "enable": "groups whose sessions have the same metric are sampled again; refused with "
            "one_step_off and fully_async, where verl does not read it"
        },
    ),
    Options(
        source="verl.trainer.config.RolloutCorrectionConfig",
        prefix="algorithm.rollout_correction.",
        applied={
            "rollout_is": "weighs tokens in the loss, after credit",
            "rollout_rs": "masks tokens or rows in the loss, after turns and credit are known",
            "bypass_mode": "as verl's; fingerprints and entropies need the pass that it leaves out",
        },
    ),
    Options(
        source="verl.workers.config.FSDPActorConfig",
        prefix=ACTOR,
        applied={
            "loss_agg_mode": "means over rows are means over sessions; for seq-mean-token-sum-norm "
            "set loss_scale_factor, without which verl divides by the longest response of a pass",
            "use_kl_loss": "its term is computed row by row",
            "entropy_coeff": "its term is computed row by row",
        },
        refused={"shuffle": _SHUFFLE},
    ),
    Options(
        source="verl.workers.config.PolicyLossConfig",
        prefix=f"{ACTOR}policy_loss.",
        refused={
            "loss_mode": Refused(
                ("vanilla",), "it averages the advantages of a row's turns", wrong=("geo_mean",)
            )
        },
    ),
    Options(
        source="verl.workers.config.FSDPCriticConfig",
        prefix="critic.",
        applied={"enable": "refused unless the recipe needs values, such as gae"},
        refused={"shuffle": _SHUFFLE},
    ),
    Options(
        source="verl.workers.config.DistillationLossConfig",
        prefix="distillation.distillation_loss.",
        applied={"distillation_loss_coef": "its term is added to the loss"},
        refused={"use_task_rewards": Refused((True,), "the loss would have no advantages")},
    ),
    Options(
        source="verl.workers.config.RewardConfig",
        prefix="reward.",
        applied={
            "reward_manager": "in the scores that are credited",
            "reward_model": "in the scores that are credited",
        },
    ),
)
"""By the classes of verl's configuration."""


def problems(config: Any) -> Iterator[str]:
    """What the lists refuse in verl's whole configuration."""
    from omegaconf import OmegaConf

    def read(name: str) -> Any:
        missing = object()
        value = OmegaConf.select(config, name, default=missing)
        if value is missing:
            raise KeyError(name)
        return value

    for options in OPTIONS:
        yield from options.problems(read)
