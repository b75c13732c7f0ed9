"""``check`` on what goes wrong in other people's loops, each where a naive version is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import ProblemKind, StepTable, check
from ascribe.sessions import check_sequences, from_sequences
from ascribe.sessions.reading import check_carried, import_files
from tests.sessions.test_cli_import import run
from tests.sessions.test_formats import chat, lines

pytestmark = pytest.mark.unit


def kinds(problems: Any) -> dict[ProblemKind, int]:
    return {problem.kind: problem.count for problem in problems}


def starts(**groups: list[str]) -> StepTable:
    """Two steps for each start: the start itself, and a hall that all of a group visit."""
    rows = []
    for group, texts in groups.items():
        for number, text in enumerate(texts):
            for step, state in enumerate((text, f"the hall of {group}")):
                row = {"group": group, "trajectory": f"{group}/{number}", "step": step}
                row |= {"state": state, "action": f"a{number}", "reward": float(number)}
                rows.append(row)
    return StepTable.from_dicts(rows)


SOLVE = "Fix the failing test in {}. Work carefully and run the tests before you answer."


@pytest.mark.parametrize(
    "names",
    [
        ("/workspace/run_a1/repo", "/workspace/run_b7/repo"),
        ("C:\\work\\a1\\repo", "C:\\work\\b7\\repo"),
        ("session 8d1f0c2ab7", "session 77aa01ffe3"),
        ("2f1b0c9e-7c1d-4e1a-9b1e-0a1b2c3d4e5f", "11111111-2222-4333-8444-555555555555"),
        ("the repository as of 2026-11-16", "the repository as of 2026-11-17"),
        ("the repository at 12:04:11", "the repository at 12:05:12"),
    ],
)
def test_prompts_that_differ_only_in_a_path_id_or_date(names: tuple[str, str]):
    """NeMo-RL #4013: a workspace in the prompt, and every state is a singleton.

    Naively these are different starts, and the advice is to seed the environment.
    """
    texts = [SOLVE.format(name) for name in names]
    found = kinds(check(starts(task=texts)).problems)
    assert found[ProblemKind.UNSTABLE_START] == 1
    assert ProblemKind.DIFFERENT_STARTS not in found
    assert ProblemKind.MIXED_TASKS not in found


def test_the_message_shows_what_differs():
    table = starts(task=[SOLVE.format("/tmp/a/x"), SOLVE.format("/tmp/b/x")])
    (problem,) = [p for p in check(table).problems if p.kind is ProblemKind.UNSTABLE_START]
    assert "'/tmp/a/x' and '/tmp/b/x'" in problem.detail


def test_groups_by_prompt_that_fall_apart(tmp_path: Path):
    """The same with groups that are made from the prompt: each has one trajectory.

    Naively that is a group of one, and the advice is to sample more.
    """
    rows = []
    for number in range(4):
        row = chat(str(number), reward=number)
        row["messages"][0]["content"] = SOLVE.format(f"/home/agent/run{number}/repo")
        rows.append(row)
    table = import_files([lines(tmp_path, *rows)]).table
    found = kinds(check(table).problems)
    assert found[ProblemKind.UNSTABLE_START] == 4
    assert found[ProblemKind.GROUP_OF_ONE] == 4


def test_tasks_that_differ_in_a_number_are_no_copies_of_one():
    """What tells two tasks apart must not be taken for an id: then they would be joined."""
    sums = [f"What is {a} plus {a + 17}? Answer with a number alone." for a in (3, 44, 612)]
    found = kinds(check(starts(**{f"t{n}": [text] for n, text in enumerate(sums)})).problems)
    assert ProblemKind.UNSTABLE_START not in found


def test_hashes_and_keys_as_states_are_compared_as_they_are():
    found = kinds(check(starts(a=["0123456789abcdef"], b=["fedcba9876543210"])).problems)
    assert ProblemKind.UNSTABLE_START not in found
    found = kinds(check(starts(a=["/room/1", "/room/2"])).problems)
    assert found.get(ProblemKind.DIFFERENT_STARTS) == 1


def test_groups_of_different_tasks():
    """agent-lightning #489: trajectories are dealt to groups by the wrong index.

    Naively every group has its four trajectories, with different returns.
    """
    prompts = [f"Task: bring the {thing} to the kitchen table." for thing in ("mug", "pan")]
    dealt = starts(first=prompts * 2, second=prompts * 2)
    found = kinds(check(dealt, group_size=4).problems)
    assert found[ProblemKind.MIXED_TASKS] == 2
    assert ProblemKind.DIFFERENT_STARTS not in found
    right = starts(first=prompts[:1] * 4, second=prompts[1:] * 4)
    assert not {ProblemKind.MIXED_TASKS, ProblemKind.DIFFERENT_STARTS} & set(
        kinds(check(right, group_size=4).problems)
    )


def test_mixed_tasks_are_seen_through_their_ids():
    texts = [f"Bring the {t} to the table in /run/{n}/w." for n in range(2) for t in ("mug", "pan")]
    found = kinds(check(starts(first=texts[:2], second=texts[2:])).problems)
    assert found[ProblemKind.MIXED_TASKS] == 2


def test_one_odd_start_is_no_other_task():
    found = kinds(check(starts(a=["the hall"] * 3 + ["the garden behind it"])).problems)
    assert found[ProblemKind.DIFFERENT_STARTS] == 1
    assert ProblemKind.MIXED_TASKS not in found


def test_episodes_of_one_group_from_several_versions(tmp_path: Path):
    """Naively, a file with several versions is fine if each trajectory has one."""
    rows = [chat(str(n), task=f"t{n // 2}", reward=n, version=[7, 7, 7, 8][n]) for n in range(4)]
    imported = import_files([lines(tmp_path, *rows)])
    problems = check(imported.table).problems
    (problem,) = [p for p in problems if p.kind is ProblemKind.SEVERAL_VERSIONS]
    assert problem.rows.tolist() == [2, 3]
    assert "'t1'" in problem.detail
    printed = json.loads(run("check", tmp_path / "runs.jsonl", "--json").stdout)
    assert "several_versions" in [each["kind"] for each in printed["problems"]]


def test_versions_survive_the_table(tmp_path: Path):
    rows = [chat(str(n), task="t", reward=n, version=n) for n in range(2)]
    run("import", lines(tmp_path, *rows), "--out", tmp_path / "s.parquet")
    printed = json.loads(run("check", tmp_path / "s.parquet", "--json").stdout)
    assert "several_versions" in [each["kind"] for each in printed["problems"]]


def test_responses_that_a_limit_cut(tmp_path: Path):
    """rLLM #575: a long rollout cut at a limit. The trajectory itself ends as usual."""
    rows = [chat(reward=1), {**chat("9 is", reward=0), "finish_reason": "length"}]
    (problem,) = check_carried(import_files([lines(tmp_path, *rows)]))
    assert problem.kind is ProblemKind.CUT_RESPONSE
    assert problem.rows.tolist() == [1]


# Tokens.

WORDS = ["", "<|im_start|>", "<|im_end|>", "assistant", "user", "look", "at", "mug", "done"]
END = [2]


def decode(ids: list[int]) -> str:
    return " ".join(WORDS[i] for i in ids)


#              user     look          <|im_end|> assistant  done <|im_end|>
TOKENS = [[1, 4, 5, 2, 1, 3, 5, 6, 7, 2, 1, 4, 7, 2, 1, 3, 8, 2]]
MASK = [[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1]]


def test_a_right_mask_has_no_problem():
    rewards = [[0.0] * 17 + [1.0]]
    assert check_sequences(TOKENS, MASK, decode=decode, ends=END, token_rewards=rewards) == []


def test_observation_tokens_with_mask_1():
    """Naively the mask has ones for the model's tokens and the table has a step: all is well."""
    mask = [[0] * 6 + [1] * 12]
    table, _ = from_sequences(TOKENS, mask, group=["t"], reward=[1.0], decode=decode)
    assert len(table) == 1
    (problem,) = check_sequences(TOKENS * 2, MASK + mask, decode=decode, ends=END)
    assert problem.kind is ProblemKind.OBSERVATION_IN_MASK
    assert problem.rows.tolist() == [1]


def test_a_reward_on_a_masked_token():
    """verl #7278: the reward of a turn stands before an observation, and is masked away."""
    rewards = np.zeros((1, 18))
    rewards[0, 10] = 0.5  # the first token of the observation
    rewards[0, 17] = 1.0
    assert float((rewards * np.array(MASK)).sum()) == 1.0
    (problem,) = check_sequences(np.array(TOKENS), np.array(MASK), token_rewards=rewards)
    assert problem.kind is ProblemKind.REWARD_OFF_MASK
    table, _ = from_sequences(TOKENS, MASK, group=["t"], token_rewards=rewards, decode=decode)
    assert table.reward.tolist() == [0.5, 1.0]


def test_a_run_that_a_length_limit_cut():
    """Naively the last token is tested, which is padding, or an observation in a sound sequence."""
    tokens = np.array([TOKENS[0], [*TOKENS[0][:9], *[0] * 9], [*TOKENS[0][:14], *[0] * 4]])
    mask = np.array([MASK[0], [*MASK[0][:9], *[0] * 9], [*MASK[0][:14], *[0] * 4]])
    attention = np.array([[1] * 18, [1] * 9 + [0] * 9, [1] * 14 + [0] * 4])
    (problem,) = check_sequences(tokens, mask, ends=END, attention_mask=attention)
    assert problem.kind is ProblemKind.CUT_RESPONSE
    assert problem.rows.tolist() == [1]
