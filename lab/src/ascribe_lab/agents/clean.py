"""Text that others wrote, made safe to put into a chat.

What is changed, and nothing else:

- Half a surrogate pair becomes U+FFFD. No file format and no tokeniser takes it, and an episode
  should not fail because of one bad page.
- The names of chat tokens get a space after their first character (``neutralise``).
- An observation beyond a budget is cut in the middle, with a mark (``shorten``). There is no budget
  unless the user sets one: two states that differ only in what was cut would look the same.

Control characters, escape sequences and marks of direction are left alone: a model reads them as
text. Only terminals obey them; ``ascribe.steps.problems.printable`` is for those.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from ascribe.steps.errors import InputError
from ascribe.steps.problems import replace_surrogates

CHAT_TOKENS = (
    # ChatML, Llama 3 and 4, Phi, Kimi, gpt-oss, Granite and many more; the second is DeepSeek's.
    *("<|", "<｜", "＜|", "＜｜"),
    *("<s>", "</s>", "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "<sep>", "<cls>"),
    *("[BOS]", "[EOS]", "[EOT]", "[PAD]", "[UNK]", "[MASK]"),
    # Llama 2 and Mistral.
    *("<<SYS>>", "<</SYS>>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[/TOOL_CALLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[CALL_ID]", "[ARGS]"),
    *("[THINK]", "[/THINK]", "[MODEL_SETTINGS]", "[/MODEL_SETTINGS]", "[IMG]", "[AUDIO]"),
    # Gemma, up to 3 and from 4.
    *("<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>"),
    *("<turn|>", "<channel|>", "<think|>", "<tool|>", "<tool_call|>", "<tool_response|>"),
    # Cohere; GLM; Falcon; InternLM; Baichuan; MiniCPM; Pangu; Ling.
    *("<BOS_TOKEN>", "<EOS_TOKEN>", "<EOP_TOKEN>", "<PAD>", "<UNK>", "<CLS>", "<SEP>"),
    *("[gMASK]", "[sMASK]", "<sop>", "<eop>"),
    *(">>QUESTION<<", ">>ANSWER<<", ">>TITLE<<", ">>SUMMARY<<", ">>COMMENT<<", ">>INTRODUCTION<<"),
    *(">>ABSTRACT<<", ">>DOMAIN<<", ">>PREFIX<<", ">>MIDDLE<<", ">>SUFFIX<<"),
    *("<eoh>", "<eoa>", "<eosys>", "<TOKENS_UNUSED_", "[UNUSED_TOKEN_", "[unused"),
    *("<reserved_", "<用户>", "<AI>", "<role>", "</role>"),
    # Exaone; MiniMax; Seed; Nemotron and T5; StarCoder and SmolLM.
    *("[|", "]~b]", "]~!b[", "]!p~[", "[e~[", "<seed:", "</seed:", "<SPECIAL_", "<extra_id_"),
    *("<fim_", "<file_sep>", "<repo_name>"),
)
"""What chat tokens of the known families of models are called, or begin with.

``<|`` covers ``<|im_end|>``, ``<|eot_id|>``, ``<|endoftext|>`` and all others of that form. Some
models mark turns by ordinary words (Vicuna by ``USER:``), which are left alone. The tags of tool
calls are left alone as well, for responses hold them; ``pivots.chat`` breaks them in the
output of tools. WebShop's observations hold ``[SEP]``, so it is left alone too.
"""


def neutralise(text: str, tokens: Sequence[str] = CHAT_TOKENS) -> str:
    """The text without the names of chat tokens: ``<|im_end|>`` becomes ``< |im_end|>``.

    A tokeniser that meets the name of a chat token in a text may read it as the token, so that a
    web page could end the user's turn and speak for the assistant. A space is used, and not a
    character of no width: one can see it, and tokenisers keep it.

    One pass is enough: a name without spaces that is in the result was in the text as well, and so
    it got its space.

    Raises:
        ValueError: for a token that has a space in it or fewer than two characters.
    """
    return _starts(tuple(tokens)).sub(r"\g<0> ", text)


def safe(text: str, tokens: Sequence[str] = CHAT_TOKENS) -> str:
    """The text without the names of chat tokens and without half surrogates."""
    return neutralise(replace_surrogates(text), tokens)


def shorten(text: str, longest: int | None) -> str:
    """At most ``longest`` characters of the text, its beginning and its end, a mark between."""
    if longest is None or len(text) <= longest:
        return text
    cut = len(text) - longest
    head = longest - longest // 2
    return f"{text[:head]} [... {cut} characters left out ...] {text[head + cut :]}"


@lru_cache(maxsize=64)
def _starts(tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Matches the first character of every token and looks at the rest: tokens may overlap."""
    rests: dict[str, list[str]] = {}
    for token in tokens:
        if len(token) < 2 or " " in token:
            raise InputError(f"cannot break the chat token {token!r} with a space")
        rests.setdefault(token[0], []).append(re.escape(token[1:]))
    choices = [f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items()]
    return re.compile("|".join(choices) if choices else "(?!)")
