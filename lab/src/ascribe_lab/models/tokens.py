"""``Chat``: from messages to prompt ids, once, and from response ids to text.

Special tokens such as ``<|im_end|>`` structure a chat, but an observation may contain the same
text. If the chat were tokenised as one string, that text would become the token, and an environment
could end its turn and write a system message. Here special tokens come from the chat template only.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ascribe.sessions.endings import as_ids
from ascribe.steps.errors import InputError
from ascribe_lab.models.loading import load_tokenizer

Message = dict[str, str]
"""One message of a chat: ``{"role": "user", "content": "..."}``."""

MARK, MARK_END = "\ue000", "\ue001"
"""Private-use characters around the placeholder of a special text while the template runs."""


class PromptTooLongError(InputError):
    """A prompt leaves no room for a response in the model's context."""


class Chat:
    """A tokenizer with its model's end-of-turn tokens and context length.

    Args:
        tokenizer: from ``transformers``, with a chat template.
        ends: ids that end the model's turn, besides the tokenizer's end-of-sequence token.
        context: how many tokens prompt and response may have together; None for no limit.
        template_options: what the chat template takes, such as ``{"enable_thinking": False}``.
    """

    def __init__(
        self,
        tokenizer: Any,
        ends: Iterable[int] = (),
        context: int | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.context = context
        end = tokenizer.eos_token_id
        self.ends = frozenset(ends) | (frozenset() if end is None else {end})
        self._options = dict(template_options or {})
        added = tokenizer.added_tokens_decoder.items()
        self._special = {token.content: (i, token) for i, token in added if token.special}
        self._special_ids = frozenset(i for i, _ in self._special.values())
        # Longest first: of two special tokens with a common prefix, the tokenizer takes the longer.
        longest = sorted(self._special, key=lambda text: (-len(text), text))
        self._pattern = re.compile("|".join(map(re.escape, longest)) or r"(?!)")

    @cached_property
    def vocabulary(self) -> int:
        """One more than the largest token id."""
        ids: Sequence[int] = self.tokenizer.get_vocab().values()
        return 1 + max(ids)

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids of a chat, with the opening of the model's own turn at the end.

        They are those of the tokenizer's ``apply_chat_template``, unless a message holds the text
        of a special token: that is tokenised as the plain text it is.

        Raises:
            PromptTooLongError: if there is no room for one more token.
        """
        ids = (
            self._ids(self._rendered(messages))
            if self._has_no_special_text(messages)
            else self._prompt_with_special_text(messages)
        )
        if self.context is not None and len(ids) >= self.context:
            raise PromptTooLongError(
                f"the prompt has {len(ids)} tokens, the context {self.context}"
            )
        return tuple(ids)

    def room(self, prompt: Sequence[int], most: int) -> int:
        """How many tokens the response may have: ``most``, or what the context leaves."""
        return most if self.context is None else min(most, self.context - len(prompt))

    def text(self, response: Sequence[int]) -> str:
        """A response decoded, without the token that ends the turn.

        Other special tokens that the model sampled stay visible as text.
        """
        if response and response[-1] in self.ends:
            response = response[:-1]
        text: str = self.tokenizer.decode(
            list(response),
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
            spaces_between_special_tokens=False,
        )
        return text

    def ids(self, response: str) -> list[int]:
        """The ids of a response as plain text, without the token that ends the turn."""
        return self._ids(response, split_special_tokens=True)

    def _has_no_special_text(self, messages: Sequence[Message]) -> bool:
        """Whether no content gives a special id, not even after the tokenizer's normalisation."""
        contents = [message["content"] for message in messages]
        return all(self._special_ids.isdisjoint(self._ids(text)) for text in contents)

    def _prompt_with_special_text(self, messages: Sequence[Message]) -> list[int]:
        """Render the template with placeholders for special texts, then restore the texts.

        Special texts that the rendered chat still holds are the template's own. The tokenizer
        splits text at special tokens too, so the pieces between are tokenised one by one.
        """
        mark = MARK
        while any(mark in message["content"] for message in messages):
            mark += MARK
        hidden: list[str] = []

        def hide(match: re.Match[str]) -> str:
            hidden.append(match[0])
            return f"{mark}{len(hidden) - 1}{MARK_END}"

        rendered = self._rendered(
            [{**m, "content": self._pattern.sub(hide, m["content"])} for m in messages]
        )
        marked = re.compile(f"{mark}([0-9]+){MARK_END}")

        def restored(piece: str) -> str:
            return marked.sub(lambda match: hidden[int(match[1])], piece)

        ids: list[int] = []
        start, strip_left = 0, False
        for match in self._pattern.finditer(rendered):
            token_id, token = self._special[match[0]]
            # Some special tokens absorb adjacent white space.
            piece = _stripped(rendered[start : match.start()], strip_left, token.lstrip)
            ids += self._ids(restored(piece), split_special_tokens=True)
            ids.append(token_id)
            start, strip_left = match.end(), token.rstrip
        piece = _stripped(rendered[start:], strip_left, False)
        return ids + self._ids(restored(piece), split_special_tokens=True)

    def _rendered(self, messages: Sequence[Message]) -> str:
        text: str = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, **self._options
        )
        return text

    def _ids(self, text: str, **options: Any) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, **options)["input_ids"]
        return ids


def load_chat(folder: str | Path, context: int | None = None, **options: Any) -> Chat:
    """The chat of a model folder: its tokenizer, the ends of its turns, and its context.

    Args:
        folder: holds the tokenizer's files, and the model's ``config.json`` and
            ``generation_config.json`` if it has them.
        context: most tokens of prompt and response together, if below the model's own limit.
        options: further ones of ``Chat``.
    """
    folder = Path(folder)
    tokenizer = load_tokenizer(folder)
    general, config = _json(folder / "generation_config.json"), _json(folder / "config.json")
    ends = as_ids(general.get("eos_token_id")) | as_ids(config.get("eos_token_id"))
    return Chat(tokenizer, ends, smaller(context, config.get("max_position_embeddings")), **options)


def _stripped(piece: str, left: bool, right: bool) -> str:
    piece = piece.lstrip() if left else piece
    return piece.rstrip() if right else piece


def smaller(first: int | None, second: int | None) -> int | None:
    """The smaller of two limits, where None is no limit."""
    limits = [limit for limit in (first, second) if limit is not None]
    return min(limits) if limits else None


def _json(path: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return fields
