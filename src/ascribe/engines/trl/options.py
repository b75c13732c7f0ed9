"""What becomes of the options of TRL's configurations that act on rewards or advantages.

TRL multiplies the loss of a token by its advantage. It takes one advantage for each token as it
takes one for each row; what is refused here would mix the advantages of a row, or change rewards.
"""

from ascribe.engines.options import Options, Refused

CLIPPING = "by the sign of the advantage of the token's turn"
SAMPLER = "multiplies the loss of tokens, advantages included"

GRPO = Options(
    source="`trl.GRPOConfig`, TRL 1.14 to 1.16",
    applied={
        "num_generations": "is the size of a group",
        "reward_weights": "the reward of an episode is the weighted sum of the reward functions",
        "loss_type": "in every loss a token has the advantage of its turn; `grpo` and `sapo` are "
        "means over rows, in which a token of a long episode counts less",
        "epsilon": f"clips ratios {CLIPPING}",
        "epsilon_high": f"clips ratios {CLIPPING}",
        "delta": f"clips ratios {CLIPPING}",
        "sapo_temperature_pos": f"is chosen {CLIPPING}",
        "sapo_temperature_neg": f"is chosen {CLIPPING}",
        "vespo_k_pos": f"is chosen {CLIPPING}",
        "vespo_k_neg": f"is chosen {CLIPPING}",
        "vespo_lambda_pos": f"is chosen {CLIPPING}",
        "vespo_lambda_neg": f"is chosen {CLIPPING}",
        "off_policy_mask_threshold": "in a row that is off policy, turns with a negative advantage "
        "are not learned from; the others are",
        "mask_truncated_completions": "a truncated episode is not learned from, and counts in what "
        "others are compared with",
        "top_entropy_quantile": "tokens of low entropy are not learned from; credit is the same",
        "vllm_importance_sampling_correction": SAMPLER,
        "vllm_importance_sampling_mode": SAMPLER,
        "vllm_importance_sampling_clip_max": SAMPLER,
        "vllm_importance_sampling_clip_min": SAMPLER,
        "vllm_importance_sampling_cap": SAMPLER,
    },
    refused={
        "scale_rewards": Refused(
            fine=("group",),
            why="the recipe scales rewards, so it would have no effect",
            instead="leave it unset, and choose a recipe (dr_grpo does not scale)",
        ),
        "multi_objective_aggregation": Refused(
            fine=("sum_then_normalize",),
            why="the recipe compares sums of rewards, so it would have no effect",
        ),
        "importance_sampling_level": Refused(
            fine=("token",),
            why="all tokens of a row would learn from the mean of its advantages, so that turns "
            "with +1 and -1 learn nothing; rows of one turn may have it",
        ),
    },
)
"""Of ``AscribeTrainer``."""

ASYNC_GRPO = Options(
    source="`trl.experimental.async_grpo.AsyncGRPOConfig`, TRL 1.14 to 1.16",
    applied={
        "num_generations": "is the size of a group",
        "epsilon": f"clips ratios {CLIPPING}",
        "epsilon_high": f"clips ratios {CLIPPING}",
        "max_staleness": "rows of an older policy are dropped after credit, so their sessions "
        "count in what others are compared with",
        "token_budget": "longer rows are dropped after credit, in the same way",
    },
    no_effect={
        "fork_threshold_tokens": "a turn has the same credit in a row that TRL re-aligned and in a "
        "row of its own",
    },
)
"""Of ``AscribeAsyncTrainer``."""

OPTIONS = (GRPO, ASYNC_GRPO)
