"""AReaL: an actor whose advantages are those of a recipe.

In a module that the workers can import, and not in the training script itself::

    from areal.engine import FSDPPPOActor
    from ascribe.engines.adapters.areal import CreditedActor

    class Actor(CreditedActor, FSDPPPOActor):
        method = "sbc"

and in the script, before it creates the trainer, ``areal.engine.FSDPPPOActor = Actor``: AReaL's
controller sends the class to the workers by its module and name. A batch is a list of padded tensor
dicts, one for each prompt: its rows are the samples of the prompt, and so a group. A workflow may
add a tensor ``truncated``: whether a limit ended each sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ascribe.engines.adapters import ExampleEpisode, check_seams, check_state, stateless
from ascribe.engines.crediting import credit_steps
from ascribe.engines.options import Options, Refused, refuse
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import Decoder, Spans, State, from_sequences, spread
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable

_REWARDS = "in the rewards that are credited"
_OWN = Refused((1.0,), "AReaL's own estimator alone reads it", "set the recipe's gamma instead")
OPTIONS = (
    Options(
        source="areal.api.cli_args.PPOActorConfig",
        prefix="actor.",
        applied={
            **dict.fromkeys(("reward_scaling", "reward_bias", "reward_clip"), _REWARDS),
            "overlong_reward_penalty": _REWARDS,
            "mask_no_eos_with_zero": "samples as long as the longest of a batch have the reward 0",
            "rejection_sampling": "masks or weighs tokens in the loss",
            "m2_threshold": "masks tokens in the loss",
        },
        no_effect={"kl_estimator": "it belongs to kl_ctl"},
        refused={
            "reward_norm": Refused(
                (None,), "the recipe compares the rewards of a group, and would do so twice"
            ),
            "adv_norm": Refused((None,), "its mean moves turns without credit"),
            "kl_ctl": Refused((0.0,), "rewards are the environment's"),
            "importance_sampling_level": Refused(
                ("token",), "it averages the advantages of a sample's turns"
            ),
            "discount": _OWN,
            "gae_lambda": _OWN,
        },
        untouched=(
            *("ppo_n_minibatches", "eps_clip", "eps_clip_higher", "c_clip", "use_sapo_loss"),
            *("sapo_tau_pos", "sapo_tau_neg", "recompute_logprob", "use_decoupled_loss"),
            *("prox_logp_method", "log_agent_stats", "log_agent_stats_keys", "max_new_tokens"),
            *("overlong_tokens", "overlong_penalty_factor", "experiment_name", "trial_name"),
            *("path", "attn_impl", "use_kernels", "init_from_scratch", "is_critic", "temperature"),
            *("mb_spec", "pad_to_maximum", "disable_dropout", "gradient_checkpointing", "dtype"),
            *("grad_reduce_dtype", "optimizer_dtype", "optimizer", "weight_update_mode", "fsdp"),
            *("archon", "megatron", "offload", "use_lora", "lora_rank", "lora_alpha"),
            *("target_modules", "peft_type", "enable_tree_training", "scheduling_spec", "backend"),
            *("_version", "admin_api_key", "log_level", "request_timeout", "setup_timeout"),
            "scheduling_strategy",
        ),
    ),
    Options(
        source="areal.api.cli_args.AgentConfig, which the actor is not given",
        prefix="rollout.agent.",
        applied={
            "turn_discount": "in the rewards that are credited",
            "export_style": "a row is a session, so each interaction is one unless it is concat",
        },
        untouched=(
            *("agent_cls_path", "admin_api_key", "scheduling_spec", "mode", "tool_call_parser"),
            *("reasoning_parser", "chat_template_type", "engine_max_tokens"),
            *("subproc_max_workers", "session_timeout_seconds", "set_reward_finish_timeout"),
        ),
    ),
    Options(
        source="areal.api.cli_args.PPOConfig, which the actor is not given",
        applied={"teacher": "its term is added to the loss"},
        no_effect={"critic": "it learns AReaL's returns, and no advantage depends on it"},
        untouched=(
            *("gconfig", "eval_gconfig", "rollout", "actor", "ref", "dynamic_bs"),
            *("experiment_name", "trial_name", "cluster", "allocation_mode", "seed"),
            *("enable_offload", "total_train_epochs", "total_train_steps", "total_train_n_seqs"),
            *("tokenizer_path", "train_dataset", "valid_dataset", "saver", "evaluator"),
            *("stats_logger", "perf_tracer", "memory_profiler", "recover", "sglang", "vllm"),
            "scheduler",
        ),
    ),
)
"""What becomes of AReaL's options."""


@dataclass(frozen=True)
class ArealAdapter:
    """Padded tensor dicts to steps, and advantages where AReaL has them: one token earlier.

    Attributes:
        decode: token ids to text; without it texts are the ids themselves.
        state: what counts as the state of a step.
    """

    decode: Decoder | None = None
    state: State = "observation"

    def __post_init__(self) -> None:
        check_state(self.state)

    def steps(self, batch: Sequence[dict[str, Any]]) -> tuple[StepTable, Spans]:
        """One row for each run of tokens that the model wrote; call it before AReaL shifts masks.

        It wrote what the loss mask says, and what has a version of the policy: a mask with zeros
        inside a response, or in all of it, leaves the turn as it is.
        """
        rows = [
            (number, item, row, int(item["attention_mask"][row].sum()))
            for number, item in enumerate(batch)
            for row in range(len(item["input_ids"]))
        ]
        known = "truncated" in batch[0]
        return from_sequences(
            [item["input_ids"][row, :size] for _, item, row, size in rows],
            [_written(item)[row, :size] for _, item, row, size in rows],
            group=[number for number, *_ in rows],
            reward=[float(item["rewards"][row]) for _, item, row, _ in rows],
            truncated=[bool(item["truncated"][row]) for _, item, row, _ in rows] if known else None,
            decode=self.decode,
            state=self.state,
        )

    def put(self, batch: Sequence[dict[str, Any]], places: Spans, advantages: Floats) -> Any:
        """The batch with ``advantages``; that of a token stands where it is predicted."""
        tokens = iter(spread(advantages, places, like=batch[0]["logprobs"]))
        for item in batch:
            item["advantages"] = torch.zeros_like(item["logprobs"], dtype=torch.float32)
            for row in item["advantages"]:
                values = next(tokens)[1:]
                row[: len(values)] = values
        return batch

    def example(self, episodes: Sequence[ExampleEpisode]) -> list[dict[str, Any]]:
        """One dict for each group; of a failed episode a workflow returns nothing."""
        from areal.utils.data import concat_padded_tensors

        groups: dict[str, list[dict[str, Any]]] = {}
        for episode in episodes:
            row = {
                "input_ids": torch.tensor([episode.tokens]),
                "loss_mask": torch.tensor([episode.mask]),
                "logprobs": -0.5 * torch.tensor([episode.mask]),
                "attention_mask": torch.ones(1, len(episode.tokens), dtype=torch.bool),
                "rewards": torch.tensor([episode.reward]),
                "truncated": torch.tensor([episode.truncated]),
            }
            groups.setdefault(episode.group, []).extend([] if episode.failed else [row])
        return [concat_padded_tensors(rows) for rows in groups.values()]

    def advantages(self, result: Sequence[dict[str, Any]]) -> list[Sequence[float]]:
        """The advantages on each row, with its padding."""
        return [row.tolist() for item in result for row in item["advantages"]]


def _written(item: dict[str, Any]) -> Any:
    """1 where the model wrote the token; prompts and observations have the version -1."""
    mask = item["loss_mask"] != 0
    return mask | (item["versions"] >= 0) if "versions" in item else mask


class CreditedActor:
    """For the bases of an actor, before AReaL's: its advantages are those of a recipe.

    AReaL still shifts masks and log-probabilities, and transforms the rewards. A config with
    options that would act on credit in a wrong way is refused (``OPTIONS``).
    """

    method: ClassVar[str | Recipe] = DEFAULT
    adapter: ClassVar[ArealAdapter] = ArealAdapter()

    def __init__(self, config: Any) -> None:
        self.recipe = stateless(self.method)
        order = type(self).__mro__
        check_seams(order[order.index(CreditedActor) + 1], "compute_advantages")
        refuse(OPTIONS[:1], lambda name: getattr(config, name.removeprefix("actor.")))
        super().__init__(config)  # type: ignore[call-arg]

    def compute_advantages(self, data: list[dict[str, Any]]) -> Any:
        """The batch with the recipe's advantages."""
        from areal.utils import stats_tracker

        given = [dict(item) for item in data]  # with the masks as they are
        data = super().compute_advantages(data)  # type: ignore[misc]
        for item, own in zip(given, data, strict=True):
            item["rewards"] = own["tot_rewards"].sum(dim=-1)
        table, spans = self.adapter.steps(given)
        credited = credit_steps(table, self.recipe)
        data = self.adapter.put(data, spans, credited.advantage)
        for item in data:
            item["advantages"] *= item["loss_mask"]
        hidden = [
            (_written(item) & (item["loss_mask"] == 0) & (item["attention_mask"] != 0)).sum()
            for item in given
        ]
        stats_tracker.scalar(
            **{
                "ascribe/signal": credited.signal.mean() if len(table) else 0.0,
                "ascribe/dropped_groups": len(credited.dropped),
                "ascribe/masked_tokens": sum(map(int, hidden)),
            }
        )
        return data
