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
        untouched=("filter_groups", "rollout_correction"),
    ),
    Options(
        source="verl.trainer.config.FilterGroupsConfig",
        prefix="algorithm.filter_groups.",
        applied={
            "enable": "groups whose sessions have the same metric are sampled again; refused with "
            "one_step_off and fully_async, where verl does not read it"
        },
        untouched=("metric", "max_num_gen_batches", "max_inflight_gen_batches"),
    ),
    Options(
        source="verl.trainer.config.RolloutCorrectionConfig",
        prefix="algorithm.rollout_correction.",
        applied={
            "rollout_is": "weighs tokens in the loss, after credit",
            "rollout_rs": "masks tokens or rows in the loss, after turns and credit are known",
            "bypass_mode": "as verl's; fingerprints and entropies need the pass that it leaves out",
        },
        untouched=(
            *("rollout_is_threshold", "rollout_is_batch_normalize", "rollout_rs_threshold"),
            "loss_type",
        ),
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
        untouched=(
            *("strategy", "ppo_mini_batch_size", "ppo_micro_batch_size", "use_dynamic_bsz"),
            *("ppo_micro_batch_size_per_gpu", "ppo_infer_micro_batch_size_per_gpu"),
            *("ppo_max_token_len_per_gpu", "ppo_infer_max_token_len_per_gpu", "clip_ratio"),
            *("clip_ratio_low", "clip_ratio_high", "freeze_vision_tower", "policy_loss"),
            *("clip_ratio_c", "loss_scale_factor", "tau_pos", "tau_neg", "calculate_entropy"),
            *("calculate_sum_pi_squared", "use_prefix_grouper", "use_torch_compile"),
            *("kl_loss_coef", "kl_loss_type", "ppo_epochs", "data_loader_seed", "checkpoint"),
            *("optim", "use_fused_kernels", "profiler", "engine", "rollout_n", "model_config"),
            *("global_batch_info", "qat", "grad_clip", "ulysses_sequence_parallel_size"),
            *("entropy_from_logits_with_chunking", "entropy_from_logits_chunk_size"),
            *("entropy_checkpointing", "pad_to_length", "fsdp_config", "use_remove_padding"),
            "use_rollout_log_probs",
        ),
    ),
    Options(
        source="verl.workers.config.PolicyLossConfig",
        prefix=f"{ACTOR}policy_loss.",
        refused={
            "loss_mode": Refused(
                ("vanilla",), "it averages the advantages of a row's turns", wrong=("geo_mean",)
            )
        },
        untouched=(
            *("clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef"),
            *("dro_beta", "rollout_correction"),
        ),
    ),
    Options(
        source="verl.workers.config.FSDPCriticConfig",
        prefix="critic.",
        applied={"enable": "refused unless the recipe needs values, such as gae"},
        refused={"shuffle": _SHUFFLE},
        untouched=(
            *("strategy", "ppo_micro_batch_size_per_gpu", "rollout_n", "ppo_mini_batch_size"),
            *("use_dynamic_bsz", "ppo_max_token_len_per_gpu", "forward_max_token_len_per_gpu"),
            *("ppo_infer_micro_batch_size_per_gpu", "ppo_infer_max_token_len_per_gpu"),
            *("ppo_epochs", "data_loader_seed", "cliprange_value", "loss_agg_mode"),
            *("loss_scale_factor", "ppo_micro_batch_size", "engine", "optim", "model"),
            *("checkpoint", "profiler", "fsdp", "forward_micro_batch_size"),
            *("forward_micro_batch_size_per_gpu", "ulysses_sequence_parallel_size", "grad_clip"),
        ),
    ),
    Options(
        source="verl.workers.config.DistillationLossConfig",
        prefix="distillation.distillation_loss.",
        applied={"distillation_loss_coef": "its term is added to the loss"},
        refused={"use_task_rewards": Refused((True,), "the loss would have no advantages")},
        untouched=(
            *("loss_mode", "topk", "loss_max_clamp", "log_prob_min_clamp", "use_chunked_topk"),
            *("chunked_topk_chunk_size", "use_policy_gradient", "policy_loss_mode", "clip_ratio"),
            *("clip_ratio_low", "clip_ratio_high", "global_batch_info", "loss_settings"),
        ),
    ),
    Options(
        source="verl.workers.config.RewardConfig",
        prefix="reward.",
        applied={
            "reward_manager": "in the scores that are credited",
            "reward_model": "in the scores that are credited",
        },
        untouched=("num_workers", "sandbox_fusion"),
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
