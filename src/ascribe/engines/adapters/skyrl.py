"""SkyRL: a trainer whose advantages are those of a recipe.

::

    from skyrl.train.entrypoints.main_base import BasePPOExp
    from skyrl.train.trainer import RayPPOTrainer
    from ascribe.engines.adapters.skyrl import credited

    class Experiment(BasePPOExp):
        def get_trainer(self, **parts):
            return credited(RayPPOTrainer, "sbc")(**parts)

A batch is a ``TrainingInputBatch``. With ``generator.step_wise_trajectories`` rows up to the next
true ``is_last_step`` are one session; otherwise each row is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import pad

from ascribe.engines.adapters import (
    ExampleEpisode,
    check_seams,
    check_state,
    credit_batch,
    stateless,
)
from ascribe.engines.options import Options, Refused, refuse
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import Decoder, Spans, State, from_sequences, spread
from ascribe.steps.arrays import Floats
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

_OWN = Refused(
    (1.0,), "SkyRL's own estimators alone read it", "leave it at 1.0, and pass a recipe with gamma"
)
OPTIONS = (
    Options(
        source="skyrl.train.config.AlgorithmConfig",
        prefix="trainer.algorithm.",
        applied={
            "loss_reduction": "weighs the tokens in the loss",
            "zero_variance_filter": "masks groups whose rewards are equal: they are not trained on",
        },
        no_effect={
            "advantage_estimator": "the recipe takes its place; it still runs for SkyRL's metrics, "
            "and for the returns of a critic",
            "kl_ctrl": "it belongs to use_kl_in_reward",
        },
        refused={
            "advantage_batch_normalize": Refused(
                (False,), "its mean counts observations and padding, and moves turns without credit"
            ),
            "use_kl_in_reward": Refused(
                (False,), "rewards are the environment's", "use trainer.algorithm.use_kl_loss"
            ),
            "policy_loss_type": Refused(
                ("regular",), "this loss takes no advantages", wrong=("cross_entropy",)
            ),
            "gamma": _OWN,
            "lambd": _OWN,
            "grpo_norm_by_std": Refused(
                (True,), "SkyRL's own grpo alone reads it", "pass the recipe dr_grpo instead"
            ),
        },
        untouched=(
            *("off_policy_correction", "dynamic_sampling", "kl_estimator_type", "use_kl_loss"),
            *("kl_loss_coef", "use_entropy_loss", "entropy_loss_coef", "temperature"),
            *("value_head_prefix", "value_clip", "zero_variance_filter_tol", "eps_clip_low"),
            *("eps_clip_high", "clip_ratio_c", "tis_imp_ratio_cap", "use_tis", "sapo"),
            *("clip_cov", "kl_cov", "cispo", "dppo"),
            "max_seq_len",
        ),
    ),
    Options(
        source="skyrl.train.config.config.DynamicSamplingConfig",
        prefix="trainer.algorithm.dynamic_sampling.",
        refused={
            "type": Refused(
                (None, "filter"), "copies of sessions would count as further attempts at their task"
            )
        },
        untouched=("max_sample_batches", "min_replace_ratio"),
    ),
    Options(
        source="skyrl.train.config.config.OffPolicyCorrectionConfig",
        prefix="trainer.algorithm.off_policy_correction.",
        applied={
            "tis_ratio_type": "weighs tokens or rows in the loss",
            "sequence_mask_metric": "masks rows in the loss",
        },
        untouched=(
            *("token_tis_ratio_clip_high", "sequence_tis_ratio_clip_high", "geo_mask_high"),
            *("geo_mask_low", "product_mask_high", "product_mask_low"),
            *("outlier_token_is_threshold_low", "outlier_token_is_threshold_high"),
            *("token_mask_is_threshold_low", "token_mask_is_threshold_high"),
        ),
    ),
    Options(
        source="skyrl.train.config.config.FullyAsyncConfig",
        prefix="trainer.fully_async.",
        applied={
            "max_staleness_steps": "a group is compared as if one policy had played it",
            "sample_full_batch": "groups whose rewards are equal are left out before credit",
        },
        untouched=(
            *("enabled", "num_parallel_generation_workers", "clear_kv_cache_on_weight_sync"),
            *("simulate_training", "simulate_training_step_seconds"),
            "simulate_weight_sync_seconds",
        ),
    ),
    Options(
        source="skyrl.train.config.GeneratorConfig",
        prefix="generator.",
        applied={
            "zero_reward_on_non_stop": "in the rewards that are credited",
            "step_wise_trajectories": "the rows of a session are compared as one session",
            "merge_stepwise_output": "as step_wise_trajectories",
        },
        refused={
            "apply_overlong_filtering": Refused(
                (False,), "it hides who wrote the tokens, so turns would vanish from baselines"
            )
        },
        untouched=(
            *("inference_engine", "n_samples_per_prompt", "batched", "max_turns"),
            *("max_input_length", "chat_template", "chat_template_kwargs", "sampling_params"),
            *("use_conversation_multi_turn", "append_eos_token_after_stop_str_in_multi_turn"),
            *("eval_sampling_params", "eval_n_samples_per_prompt", "use_cache_salt"),
            "vision_language_generator",
        ),
    ),
    Options(
        source="skyrl.train.config.TrainerConfig",
        prefix="trainer.",
        no_effect={"critic": "it learns SkyRL's returns, and no advantage depends on it"},
        untouched=(
            *("placement", "use_expandable_segments", "sequence_parallel_backend", "strategy"),
            *("policy", "ref", "algorithm", "mtp", "fully_async", "gradient_checkpointing"),
            *("gradient_checkpointing_use_reentrant", "seed", "resume_mode", "resume_path"),
            *("log_path", "ckpt_path", "max_ckpts_to_keep", "ckpt_interval", "hf_save_interval"),
            *("export_path", "bf16", "epochs", "max_training_steps", "update_epochs_per_batch"),
            *("train_batch_size", "policy_mini_batch_size", "critic_mini_batch_size"),
            *("micro_train_batch_size_per_gpu", "micro_forward_batch_size_per_gpu"),
            *("max_tokens_per_microbatch", "recompute_old_logprobs_per_minibatch"),
            *("update_ref_every_epoch", "remove_microbatch_padding", "eval_batch_size"),
            *("eval_before_train", "eval_interval", "max_prompt_length", "flash_attn"),
            *("disable_fast_tokenizer", "project_name", "run_name", "logger", "tags"),
            *("enable_ray_gpu_monitor", "dump_data_batch", "dump_eval_results"),
            *("print_example_interval", "num_logger_eval_samples", "num_logger_train_samples"),
            *("log_example_interval", "logprobs_chunk_size", "fused_lm_head_logprob"),
            "fused_lm_head_logprob_backend",
        ),
    ),
    Options(
        source="skyrl.train.config.AlgorithmConfig, with generator.step_wise_trajectories",
        prefix="trainer.algorithm.",
        refused={
            "loss_reduction": Refused(
                ("token_mean", "prompt_mean"), "a session of several rows would not count as one"
            ),
            "dynamic_sampling.type": Refused((None,), "it takes rows for sessions, and cuts them"),
        },
    ),
)
"""What becomes of SkyRL's options; the last list is for rows of turns alone."""


@dataclass(frozen=True)
class SkyrlAdapter:
    """Training batches to steps, and advantages onto the tokens of their responses.

    Attributes:
        decode: token ids to text; without it texts are the ids themselves.
        state: what counts as the state of a step.
        step_rewards: whether the rewards of all rows of a session count. By default only those of
            its last row do, as in SkyRL: some generators copy the final reward onto every row.
    """

    decode: Decoder | None = None
    state: State = "observation"
    step_rewards: bool = False

    def __post_init__(self) -> None:
        check_state(self.state)

    def steps(self, batch: Any) -> tuple[StepTable, Spans]:
        """One row for each run of ones in a loss mask; rows that fill up the batch have none."""
        rows, width = batch["sequences"].shape
        real = rows - batch.metadata.get("pad_size", 0)
        last = batch.metadata.get("is_last_step") or [True] * rows
        counted = [True] * rows if self.step_rewards else last
        rewards = batch["rewards"] * torch.tensor(counted)[:, None]
        # Tensors of responses lack the columns of the prompts, which are on the left.
        missing = width - rewards.shape[1]
        sessions = list(accumulate(last[:-1], initial=0))
        reasons = dict(zip(sessions, batch.metadata.get("stop_reasons") or (), strict=False))
        return from_sequences(
            batch["sequences"],
            pad(batch["loss_mask"], (missing, 0)),
            group=[*batch.metadata["uids"][:real], *[None] * (rows - real)],
            trajectory=sessions,
            token_rewards=pad(rewards, (missing, 0)),
            truncated=[reasons[name] == "length" for name in sessions] if reasons else None,
            decode=self.decode,
            state=self.state,
            attention_mask=self._observed(batch, last),
            forks=False,
        )

    def _observed(self, batch: Any, last: list[bool]) -> Any:
        """The attention mask without what prompts repeat, so that states are observations."""
        mask = batch["attention_mask"].bool()
        if self.state == "history":
            return mask
        tokens = [ids[real] for ids, real in zip(batch["sequences"], mask, strict=True)]
        mask = mask.clone()
        for row in (row for row, ended in enumerate(last[:-1], 1) if not ended):
            before, size = tokens[row - 1], int(batch["response_mask"][row].sum())
            prompt = tokens[row][: len(tokens[row]) - size]
            # SkyRL appends the next observation to a response; templates may rewrite older turns.
            written = batch["loss_mask"][row - 1].flip(0).nonzero()
            new = int(written[0]) if len(written) else 0
            if not new or not torch.equal(prompt[-new:], before[-new:]):
                repeated = torch.equal(prompt[: len(before)], before)
                new = len(prompt) - len(before) * repeated
            mask[row, : mask.shape[1] - size - new] = False
        return mask

    def put(self, batch: Any, places: Spans, advantages: Floats) -> Any:
        """The batch with ``advantages``; its ``returns``, for a critic, stay SkyRL's."""
        tokens = spread(advantages, places, like=batch["rewards"].new_empty(0))
        batch["advantages"] = tokens[:, -batch["rewards"].shape[1] :].contiguous()
        return batch

    def example(self, episodes: Sequence[ExampleEpisode]) -> Any:
        """One row for each episode; of a rollout that failed a generator returns nothing."""
        from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
        from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors

        played = [episode for episode in episodes if not episode.failed]
        tensors = convert_prompts_responses_to_batch_tensors(
            SimpleNamespace(pad_token_id=0),
            [episode.tokens[:1] for episode in played],
            [episode.tokens[1:] for episode in played],
            [[0.0] * (len(each.tokens) - 2) + [each.reward] for each in played],
            [episode.mask[1:] for episode in played],
        )
        names = ("sequences", "attention_mask", "response_mask", "rewards", "loss_mask")
        batch = TrainingInputBatch(dict(zip(names, tensors, strict=False)))
        reasons = ["length" if episode.truncated else "stop" for episode in played]
        batch.metadata = {"uids": [each.group for each in played], "stop_reasons": reasons}
        return batch

    def advantages(self, result: Any) -> list[Sequence[float]]:
        """The advantages on each response."""
        return [row.tolist() for row in result["advantages"]]


def credited(trainer: type, method: str | Recipe = DEFAULT, **options: Any) -> type:
    """A subclass of ``RayPPOTrainer`` or ``FullyAsyncRayPPOTrainer``, by a recipe.

    SkyRL's own estimator still runs, for its metrics and the returns of a critic. Options are those
    of the adapter; texts are decoded with the trainer's tokenizer. The trainer raises ValueError
    for options of SkyRL that would act on credit in a wrong way (``OPTIONS``).
    """
    chosen = stateless(method)
    SkyrlAdapter(**options)  # raises before the first rollout
    check_seams(trainer, "convert_to_training_input", "compute_advantages_and_returns")

    class CreditedTrainer(trainer):  # type: ignore[misc]
        def __init__(self, cfg: Any, *parts: Any, **named: Any) -> None:
            by_turns = cfg.generator.step_wise_trajectories
            refuse(OPTIONS if by_turns else OPTIONS[:-1], lambda name: attrgetter(name)(cfg))
            super().__init__(cfg, *parts, **named)

        def convert_to_training_input(self, generator_output: Any, uids: list[str]) -> Any:
            batch = super().convert_to_training_input(generator_output, uids)
            if reasons := generator_output.get("stop_reasons"):
                batch.metadata["stop_reasons"] = reasons + [None] * batch.metadata["pad_size"]
            return batch

        def compute_advantages_and_returns(self, data: Any) -> Any:
            by_turns = self.cfg.generator.step_wise_trajectories
            if by_turns and not data.metadata.get("is_last_step"):
                raise InputError(
                    "generator.step_wise_trajectories is set, and the rows do not say which is "
                    "the last of its session (is_last_step): each turn would count as a session",
                    hint="install SkyRL 0.3.0",
                )
            adapter = SkyrlAdapter(**{"decode": self.tokenizer.decode, **options})
            data = super().compute_advantages_and_returns(data)
            data, result = credit_batch(adapter, data, chosen)
            data.metadata.pop("stop_reasons", None)
            values = data["advantages"][data["loss_mask"].bool()]
            self.all_metrics |= {
                "loss/avg_raw_advantages": values.mean().item(),
                "loss/avg_raw_advantages_abs": values.abs().mean().item(),
                "ascribe/signal": float(result.signal.mean()),
                "ascribe/dropped_groups": len(result.dropped),
                **_unread(data, one_turn=by_turns and not self.cfg.generator.merge_stepwise_output),
            }
            return data

    return CreditedTrainer


def _unread(batch: Any, *, one_turn: bool) -> dict[str, float]:
    """How many rows have masks from which turns cannot be told, as metrics."""
    real = len(batch["loss_mask"]) - batch.metadata.get("pad_size", 0)
    written = batch["loss_mask"][:real] != 0
    runs = (written & ~pad(written, (1, -1))).sum(dim=1)
    masked = batch["response_mask"][:real].any(dim=1) & (runs == 0)
    found = {"ascribe/masked_rows": float(masked.sum())}
    return found | ({"ascribe/split_rows": float((runs > 1).sum())} if one_turn else {})
