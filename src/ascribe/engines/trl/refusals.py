"""Settings of TRL that would be without effect here, or give a wrong update."""

from typing import Any


def refuse(args: Any) -> None:
    """Raise for a ``GRPOConfig`` that cannot be honoured."""
    tokens = "rows are split over passes, and"
    sampling = "responses are drawn with temperature and top_p alone"
    for wrong, why in (
        (args.max_steps <= 0, "give max_steps: tasks are drawn without end, so epochs end nowhere"),
        (args.loss_type == "bnpo", f"{tokens} bnpo depends on how: use loss_type='dapo'"),
        (
            args.entropy_coef != 0 or args.use_adaptive_entropy,
            f"{tokens} the entropy bonus depends on how: leave entropy_coef at 0",
        ),
        (
            args.top_entropy_quantile < 1.0,
            f"{tokens} the quantile of entropies depends on how: leave top_entropy_quantile at 1",
        ),
        (args.top_k not in (0, None), f"{sampling}: leave top_k at 0"),
        (args.min_p is not None, f"{sampling}: leave min_p unset"),
        (args.repetition_penalty != 1.0, f"{sampling}: leave repetition_penalty at 1"),
        (bool(args.generation_kwargs), f"{sampling}: leave generation_kwargs unset"),
        (
            args.use_vllm or args.use_transformers_continuous_batching,
            "the model itself answers in the episodes: pass policy= to sample elsewhere",
        ),
        (
            args.mask_truncated_completions,
            "mask_truncated_completions is not supported: use a recipe with truncation='exclude'",
        ),
    ):
        if wrong:
            raise ValueError(why)
