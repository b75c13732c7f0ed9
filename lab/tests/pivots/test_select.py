"""Which turns are pivots, and what the report says of the rest."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe_lab.pivots import (
    LAMBDA_DIFF,
    Candidate,
    make_verifier,
    read_turns,
    report,
    score,
    select,
    write_pivots,
)
from ascribe_lab.pivots.candidates import Origin, candidate
from ascribe_lab.pivots.profile import ProfileResponse, seed_of
from ascribe_lab.pivots.select import Scored
from ascribe_lab.pivots.verifiers.verdict import Verdict
from lab.tests.pivots.made import a_turn, call


def answered(one: Candidate, texts: Sequence[str], finish: str = "stop") -> list[ProfileResponse]:
    return [
        ProfileResponse(one.id, k, seed_of(one.id, k), "tiny", "{}", text, finish, 1, 1)
        for k, text in enumerate(texts)
    ]


def scored(rewards: Sequence[int], number: int = 0) -> Scored:
    one = a_turn("yes", f"Number {number}")
    texts = ["Yes" if reward else "no" for reward in rewards]
    (found,) = score([one], answered(one, texts), make_verifier("normalised"))
    return found


rewards = st.lists(st.integers(0, 1), min_size=2, max_size=12)


@given(rewards, st.floats(0.01, 1.0))
def test_equations_four_and_five(given_rewards: list[int], threshold: float) -> None:
    one = scored(given_rewards)
    assert one.rewards == tuple(map(float, given_rewards))
    assert one.mean == pytest.approx(np.mean(given_rewards))
    assert one.variance == pytest.approx(np.var(given_rewards))
    kept = select([one], threshold).kept
    assert bool(kept) == (np.var(given_rewards) > 0 and one.mean < threshold)


@given(st.lists(rewards, min_size=1, max_size=10))
def test_every_candidate_is_kept_or_has_a_reason(many: list[list[int]]) -> None:
    ones = [scored(each, number) for number, each in enumerate(many)]
    found = select(ones)
    assert len(found.kept) + sum(map(len, found.left_out.values())) == len(ones)
    for kind, dropped in found.left_out.items():
        for one in dropped:
            expected = {0.0: "all_wrong", 1.0: "all_right"}
            assert kind == expected.get(one.mean, "too_easy")


def test_every_reason() -> None:
    turns = [a_turn("yes", str(number)) for number in range(6)]
    answers = [
        *answered(turns[0], ["yes"] * 4),
        *answered(turns[1], ["no"] * 4),
        *answered(turns[2], ["yes", "yes", "yes", "no"]),
        *answered(turns[3], ["yes", "no"]),
        *answered(turns[4], [""] * 4, "prompt_too_long"),
    ]
    found = select(score(turns, answers, make_verifier("exact")), 0.75)
    assert {kind: [one.candidate for one in ones] for kind, ones in found.left_out.items()} == {
        "all_right": [turns[0]],
        "all_wrong": [turns[1]],
        "too_easy": [turns[2]],
        "not_profiled": [turns[3], turns[5]],
        "too_long": [turns[4]],
    }


def test_turns_that_the_verifier_cannot_judge_are_no_pivots() -> None:
    talk, tool = a_turn("In Portugal."), a_turn(call("search", query="x"))
    texts = [call("search", query="x"), "no"]
    answers = [*answered(talk, texts), *answered(tool, texts)]
    found = select(score([talk, tool], answers, make_verifier("tool_call")))
    assert [one.candidate for one in found.kept] == [tool]
    assert list(found.left_out) == ["not_verifiable"]


def test_the_first_k_answers_count_and_the_same_text_is_judged_once() -> None:
    one, seen = a_turn("yes"), []  # type: Candidate, list[str]

    def verify(_candidate: Candidate, answer: str) -> Verdict:
        seen.append(answer)
        return Verdict(answer == "yes", "same_text")

    answers = answered(one, ["no", "no", "yes", "yes"])
    (few,) = score([one], answers, verify, k=2)
    assert (few.mean, seen) == (0.0, ["no"])
    (all_of_them,) = score([one], reversed(answers), verify)
    assert all_of_them.rewards == (0.0, 0.0, 1.0, 1.0)


def test_incomplete_profiles_cost_no_verdict() -> None:
    def verify(_candidate: Candidate, _answer: str) -> Verdict:
        raise AssertionError("asked")

    one = a_turn("yes")
    (found,) = score([one], answered(one, ["yes"]), verify, k=2)
    assert found.unusable == "not_profiled"


@pytest.mark.parametrize("threshold", [0.0, 1.1, -1.0])
def test_thresholds_that_keep_nothing_or_all_are_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\]"):
        select([], threshold)


def test_pivots_are_written_with_their_profiles(tmp_path: Path) -> None:
    kept = select([scored([0, 0, 1, 0])]).kept
    path = tmp_path / "p.jsonl"
    facts = {"verifier": "normalised", "threshold": LAMBDA_DIFF}
    write_pivots(path, kept, facts)
    read = read_turns(path)
    assert (read.kind, dict(read.facts)) == ("pivots", facts)
    assert read.candidates == (kept[0].candidate,)
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[1])
    expected = {"mean": 0.25, "variance": 0.1875, "rewards": [0.0, 0.0, 1.0, 0.0]}
    assert row["profile"] == expected


# The report.


def placed(turn: int, turns: int) -> Candidate:
    said = [{"role": "user", "content": f"{turn} of {turns}"}]
    return candidate(said, "yes", Origin("f", "t", turn, turns))


def test_the_numbers_of_a_small_profile() -> None:
    outcomes = ["yyyy", "nnnn", "Yynn", "Ynnn", "nnny"]
    turns = [placed(number, 5) for number in range(5)]
    words = {"y": "yes", "Y": "YES!", "n": "no"}
    answers = [
        answer
        for one, letters in zip(turns, outcomes, strict=True)
        for answer in answered(one, [words[letter] for letter in letters])
    ]

    def verify(_candidate: Candidate, answer: str) -> Verdict:
        good = answer.lower().startswith("yes")
        return Verdict(good, "same_text" if good else "other_text")

    found = report(score(turns, answers, verify), 0.6, examples=2)
    counts = [found[name] for name in ("candidates", "profiled", "k", "kept")]
    assert counts == [5, 5, 4, 3]
    assert found["left_out"] == {"all_right": 1, "all_wrong": 1}
    assert found["without_signal"]["value"] == pytest.approx(0.4)
    assert found["histogram"] == [(0.0, 1), (0.25, 2), (0.5, 1), (0.75, 0), (1.0, 1)]
    assert dict(found["kept_at"]) == {0.25: 0, 0.5: 2, 0.6: 3, 0.75: 3, 1.0: 3}
    # Accepted: 4 + 2 + 1 + 1; of these YES! twice, which is not the demonstrated text.
    assert found["functional"] == pytest.approx(8 / 20)
    assert found["strict"] == pytest.approx(6 / 20)
    assert found["miss_rate"]["value"] == pytest.approx(2 / 8)
    assert found["miss_rate"]["turns"] == 4
    assert found["reasons"] == {"other_text": 12, "same_text": 8}
    hardest, _ = found["examples"]
    assert hardest["mean"] == 0.25
    assert hardest["accepted"] in ("yes", "YES!")
    assert (hardest["refused"], hardest["why"]) == ("no", "other_text")


def test_a_report_of_nothing_says_so() -> None:
    found = report([Scored(a_turn("x"), (), (), 4)])
    assert (found["profiled"], found["kept"]) == (0, 0)
    assert (found["without_signal"], found["miss_rate"]) == (None, None)
    assert found["examples"] == []
    assert report([])["candidates"] == 0
