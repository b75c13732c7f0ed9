"""Credit of sessions whose tokens TRL overwrites or masks: it is that of the same sessions without.

TRL renders a chat before each turn. Where the template writes a response in other tokens than the
model did, TRL's row has the template's, as context; a harness may mask tokens of a response.
Page: docs/engines/trl.md.
"""

from typing import Any

import numpy as np
import pytest

from ascribe import recipe
from ascribe.engines.crediting import say_once
from tests.engines import trl_async_toys as toys
from tests.engines.trl_tools import tool_model
from tests.engines.trl_toys import QUIET

pytest.importorskip("trl")
pytest.importorskip("aiohttp", reason="TRL's rollout process needs it")
pytestmark = [pytest.mark.engine, QUIET]

MOVES = [[1, 2], [1, 0], [2, 2], [0, 2, 2], [1, 2, 0], [2]]
RECIPES = [recipe("sbc", states="exact"), recipe("gigpo"), recipe("grpo")]
DRIFT = {
    "start": lambda text: "\n" + text,
    "inside": lambda text: text.replace('": ', '":'),
    "end": lambda text: text.replace("\n</tool_call>", " \n</tool_call>"),
}
"""How the model writes a call, where the template writes it without spaces."""
ZEROS = {"middle zeros": slice(2, 4), "first zeros": slice(2), "all zeros": slice(None)}
"""What a harness masks; before TRL 1.16 there was no such mask."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tool_model(tmp_path_factory)[1]


def turns(tokenizer: Any, messages: list[dict[str, Any]], kinds: list[str]) -> list[Any]:
    """The turns of a session, each as written by the model or masked by a harness."""
    from trl.experimental.async_grpo.async_rollout_worker import TurnRecord

    made = []
    for turn, kind in zip(toys.turns(tokenizer, messages), kinds, strict=False):
        text = DRIFT.get(kind, str)(tokenizer.decode(turn.output_ids))
        ids = tokenizer(text)["input_ids"]
        given = {}
        if kind in ZEROS:
            given["output_mask"] = np.ones(len(ids), dtype=np.int64)
            given["output_mask"][ZEROS[kind]] = 0
            given["output_mask"] = given["output_mask"].tolist()
        made.append(TurnRecord(turn.prompt_ids, ids, [-0.5] * len(ids), **given))
    return made


def scored(
    tokenizer: Any, method: Any, kinds: list[list[str]], threshold: int = 1024
) -> tuple[list[dict[int, set[float]]], dict[str, Any]]:
    """For each session the advantages of the tokens of each turn; and the metrics."""
    from trl.experimental.async_grpo.async_rollout_worker import _chain_to_sequences

    from ascribe.engines.trl.async_trainer import Crediting

    loop = toys.loop(tokenizer, Crediting(method, "observation", "raise"))
    chats = [toys.chat(rooms) for rooms in MOVES]
    played = [turns(tokenizer, *each) for each in zip(chats, kinds, strict=True)]
    sessions = [_chain_to_sequences(each, str(n), threshold)[0] for n, each in enumerate(played)]
    samples = loop._loop.run_until_complete(loop._score_group(toys.group(sessions, chats)))
    loop._loop.close()
    found: list[dict[int, set[float]]] = [{} for _ in chats]
    for sample in samples:
        number = int(sample.advantage.session.partition("/")[2])
        assert len(sample.advantage.tokens) == len(sample.input_ids)
        assert not sample.advantage.tokens[sample.completion_mask == 0].any()
        # A turn begins where its prompt ends, in the last row that begins with the prompt.
        starts = {
            len(turn.prompt_ids): place
            for place, turn in enumerate(played[number])
            if [*sample.input_ids[: len(turn.prompt_ids)]] == turn.prompt_ids
        }
        for at in np.flatnonzero(sample.completion_mask):
            turn = starts[max(start for start in starts if start <= at)]
            found[number].setdefault(turn, set()).add(float(sample.advantage.tokens[at]))
    return found, loop.metrics_queue.get()


@pytest.mark.parametrize("method", RECIPES, ids=lambda method: method.name)
@pytest.mark.parametrize("threshold", [1024, 1], ids=["one row", "forked"])
def test_credit_is_that_of_the_sessions_without_drift(
    tokenizer: Any, method: Any, threshold: int
) -> None:
    """At a call's start, inside it, at its end, and zeros in a response; each turn by turn."""
    from trl.experimental.async_grpo.async_rollout_worker import TurnRecord

    zeros = ZEROS if "output_mask" in TurnRecord.__dataclass_fields__ else {}
    ways = [*DRIFT, *zeros, "none"]
    plain, without = scored(tokenizer, method, [["none"] * 4 for _ in MOVES])
    expected = [[turn[place] for place in sorted(turn)] for turn in plain]
    assert all(len(each) == 1 for turn in expected for each in turn)
    lost, seen = 0, []
    for shift in range(len(ways)):
        kinds = [
            [*(ways[(shift + n + k) % len(ways)] for k in range(len(rooms))), "none"]
            for n, rooms in enumerate(MOVES)
        ]
        found, metrics = scored(tokenizer, method, kinds, threshold)
        for session, turn in zip(expected, found, strict=True):
            lost += len(session) - len(turn)
            for place, values in turn.items():
                assert abs(max(values) - max(session[place])) <= 1e-6
                assert abs(min(values) - max(session[place])) <= 1e-6
        seen.append((metrics, kinds))
    # Turns without a token left count in what others are compared with.
    assert lost > 5 or not zeros
    assert without["ascribe/realigned_share"] == (0, sum(len(rooms) + 1 for rooms in MOVES))
    for metrics, kinds in seen:
        realigned, count = metrics["ascribe/realigned_share"]
        assert realigned >= sum("zeros" in kind for session in kinds for kind in session)
        assert count == sum(map(len, kinds))
        assert metrics["ascribe/from_tokens_share"] == (0, count)


def test_messages_that_are_not_the_turns_are_left_aside(
    tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A harness that compacts its context has fewer messages than turns.

    Then what the model wrote is read from its tokens, also where TRL overwrote them.
    """
    from trl.experimental.async_grpo.async_rollout_worker import _chain_to_sequences

    from ascribe.engines.trl.async_trainer import Crediting

    say_once.cache_clear()
    method = RECIPES[0]
    plain, _ = scored(tokenizer, method, [["none"] * 4 for _ in MOVES])
    loop = toys.loop(tokenizer, Crediting(method, "tool", "raise"))
    chats = [toys.chat(rooms) for rooms in MOVES]
    for _ in range(2):
        played = [turns(tokenizer, chat, ["inside"] * len(chat)) for chat in chats]
        group = toys.group([_chain_to_sequences(each, "", 1024)[0] for each in played], chats)
        group.completions = [chats[0][2:], *chats[1:]]
        samples = loop._loop.run_until_complete(loop._score_group(group))
        metrics = loop.metrics_queue.get()
        count = sum(map(len, played))
        assert metrics["ascribe/from_tokens_share"] == (count, count)
        assert len(samples) == len(plain)
        for sample, each in zip(samples, plain, strict=True):
            learned = sample.advantage.tokens[sample.completion_mask > 0]
            assert abs(learned[0] - max(each[0])) <= 1e-6
            assert abs(learned[-1] - max(each[max(each)])) <= 1e-6
    loop._loop.close()
    assert caplog.text.count("ascribe/from_tokens_share counts them") == 1


def test_a_call_without_a_name_is_an_action_too(tokenizer: Any) -> None:
    """A model writes such calls; its group is still read from messages."""
    from ascribe.engines.trl.turns import conversation, from_chats

    calls = [("move", 1), ("move", 2), ("", 1), ("", 2), ("", 2)]
    chats = []
    for number, (name, room) in enumerate(calls):
        call = {"function": {"name": name, "arguments": {"room": room}}}
        said = [{"role": "assistant", "content": "", "tool_calls": [call]}]
        chats.append(conversation(toys.PROMPT, said, trajectory=str(number)))
    table = from_chats(chats, [1] * len(chats), "observation")
    assert table is not None
    assert table.action.codes[3] == table.action.codes[4]
    assert len(set(table.action.codes)) == 4
