"""How the episodes of an engine's own loop end: end-of-turn tokens, and what ``truncated`` means.

An episode is truncated if it was cut by a limit on tokens, by a limit on turns, or by a tool result
that did not fit. Otherwise it terminated.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

RESPONSE = "ascribe"


def as_ids(value: int | Sequence[int] | None) -> frozenset[int]:
    """A config's end of sequence, which may be none, one or several ids."""
    if value is None:
        return frozenset()
    return frozenset([value]) if isinstance(value, int) else frozenset(value)


def end_tokens(tokenizer: Any, generation_config: Any = None) -> frozenset[int]:
    """The end-of-turn tokens of a tokenizer, of its chat template, and of a generation config."""
    ends = as_ids(tokenizer.eos_token_id) | as_ids(getattr(generation_config, "eos_token_id", None))
    if tokenizer.chat_template is None:
        return ends
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": RESPONSE}]
    _, found, after = tokenizer.apply_chat_template(chat, tokenize=False).rpartition(RESPONSE)
    # The template's is the first special token after a response, and need not be the tokenizer's.
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    ids = tokenizer(after, add_special_tokens=False)["input_ids"] if found else []
    return ends | frozenset([number for number in ids if number in special][:1])


def is_truncated(
    ids: Sequence[int], mask: Sequence[int], ends: Collection[int], *, unanswered: bool
) -> bool:
    """Whether an episode was cut; ``mask`` is nonzero where the model wrote the token.

    ``unanswered``: its last turn called a tool, and no turn was left or the result did not fit.
    """
    written = np.flatnonzero(mask)
    return unanswered or not written.size or ids[written[-1]] not in ends
