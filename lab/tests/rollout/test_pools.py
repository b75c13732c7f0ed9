"""What all pools do alike: one result for each slot that was asked, and reasons for failures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from ascribe_lab.rollout.pools import (
    EnvironmentSpec,
    Failure,
    FailureKind,
    Pool,
    ProcessPool,
    Reset,
    SerialPool,
    StepResult,
    make_pool,
)
from lab.tests.rollout.toys import HERE, INFO, MALFORMED, TOY

Open = Callable[..., Pool]


def open_pool(kind: str, slots: int = 3, **options: Any) -> Pool:
    spec = EnvironmentSpec(TOY, options)
    if kind == "serial":
        return SerialPool(spec, slots)
    return ProcessPool(spec, workers=2, slots=slots, step_limit=20, reset_limit=20)


@pytest.fixture(
    scope="module",
    params=["serial", "processes"],
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(kind: str) -> Any:
    """One pool for all tests that leave it in order."""
    with open_pool(kind) as pool:
        yield pool


@pytest.fixture
def pool(shared: Pool) -> Pool:
    results = shared.reset({slot: Reset(slot) for slot in range(shared.slots)})
    assert all(isinstance(result, StepResult) for result in results.values())
    return shared


def observations(results: dict[int, Any]) -> dict[int, str]:
    return {slot: result.observation for slot, result in results.items()}


def test_a_reset_and_a_step(pool: Pool) -> None:
    first = pool.reset({1: Reset(7, {"task": 2})})
    begun = crc32(b"7 [('task', 2)]")
    info = dict(INFO, state=str(begun))
    assert first == {1: StepResult(f"begun at {begun}", 0.0, False, False, info, seconds=0.0)}
    second = pool.step({1: "go"})[1]
    assert isinstance(second, StepResult)
    assert second.observation.startswith("now at ")
    assert second.reward in {eighth / 8 for eighth in range(8)}
    assert 0 <= second.seconds < 5
    assert pool.step({1: "end"})[1].terminated


def test_only_the_slots_that_were_asked_answer(pool: Pool) -> None:
    assert list(pool.step({2: "go", 0: "go"})) == [2, 0]
    assert pool.step({}) == pool.reset({}) == pool.replay({}) == {}


def test_a_slot_is_its_own(pool: Pool) -> None:
    pool.reset({slot: Reset(5) for slot in range(3)})
    pool.step({0: "go", 1: "stay"})
    results = observations(pool.step({0: "go", 1: "go", 2: "go"}))
    assert len(set(results.values())) == 3
    pool.reset({2: Reset(5)})
    pool.step({2: "stay"})
    assert pool.step({2: "go"})[2].observation == results[1]


def test_replay_tells_everything_again(pool: Pool) -> None:
    begin, actions = Reset(3), ["go", "stay", "go", "end"]
    recorded = [pool.reset({0: begin})[0], *(pool.step({0: action})[0] for action in actions)]
    assert pool.replay({1: (begin, actions), 2: (begin, [])}) == {1: recorded, 2: recorded[:1]}
    assert pool.step({2: "go"})[2] == recorded[1]


def test_replay_stops_at_the_first_failure(pool: Pool) -> None:
    results = pool.replay({0: (Reset(1), ["go", "raise no", "raise later"]), 1: (Reset(1), ["go"])})
    assert results[0] == Failure(FailureKind.RAISED, "ValueError: no")
    assert len(results[1]) == 2


@pytest.mark.parametrize(
    ("action", "detail"),
    [
        ("raise \x1b[2J\x07", r"ValueError: \x1b[2J\x07"),
        ("unreadable", "Unreadable: (its message cannot be read)"),
        ("leave", "SystemExit: 5"),
    ],
)
def test_an_exception_is_an_answer(pool: Pool, action: str, detail: str) -> None:
    results = pool.step({0: "go", 1: action, 2: "go"})
    assert results[1] == Failure(FailureKind.RAISED, detail)
    assert isinstance(results[0], StepResult)
    assert isinstance(results[2], StepResult)


def test_a_long_message_is_cut(pool: Pool) -> None:
    failure = pool.step({0: f"raise {'x' * 10**5}"})[0]
    assert isinstance(failure, Failure)
    assert len(failure.detail) == 500


def test_a_failure_ends_the_episode(pool: Pool) -> None:
    pool.step({0: "raise no"})
    lost = pool.step({0: "go", 1: "go"})
    assert lost[0] == Failure(FailureKind.LOST, "there is no episode in this slot")
    assert isinstance(lost[1], StepResult)
    assert isinstance(pool.reset({0: Reset(0)})[0], StepResult)


def test_acting_after_the_end_is_the_environments_to_judge(pool: Pool) -> None:
    pool.step({0: "end"})
    assert pool.step({0: "go"})[0] == Failure(
        FailureKind.RAISED, "EpisodeOverError: the episode is over"
    )


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_no_answer_is_malformed(pool: Pool, what: str) -> None:
    results = pool.step({0: f"return {what}", 1: "go"})
    assert isinstance(results[0], Failure)
    assert results[0].kind is FailureKind.MALFORMED
    assert isinstance(results[1], StepResult)


def test_odd_but_valid_answers_become_plain(pool: Pool) -> None:
    result = pool.step({0: "return odd"})[0]
    assert isinstance(result, StepResult)
    assert (type(result.observation), type(result.reward)) == (str, float)
    assert len(result.info["dropped"]) == 6


def test_a_malformed_reset(pool: Pool) -> None:
    result = pool.reset({0: Reset(0, {"do": "return bytes"})})[0]
    assert result == Failure(FailureKind.MALFORMED, "the observation is no text but bytes")


def test_a_huge_observation(pool: Pool) -> None:
    results = pool.step(dict.fromkeys(range(3), "huge 5000000"))
    assert {slot: len(result.observation.encode()) for slot, result in results.items()} == (
        dict.fromkeys(range(3), 10_000_000)
    )


def test_a_huge_action(pool: Pool) -> None:
    result = pool.step({0: "x" * 10_000_000})[0]
    assert isinstance(result, StepResult)


@pytest.mark.parametrize("text", ["", "\x00", "\N{PILE OF POO}", "\u2028\r\n", "\udcff"])
def test_any_text_travels(pool: Pool, text: str) -> None:
    failure = pool.step({0: f"raise {text}"})[0]
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.RAISED
    assert failure.detail.isprintable()


def test_what_environments_print_is_not_on_standard_output(
    pool: Pool, capfd: pytest.CaptureFixture[str]
) -> None:
    results = pool.step(dict.fromkeys(range(3), "say HELLO"))
    assert {result.observation for result in results.values()} == {"said"}
    assert "HELLO" not in capfd.readouterr().out


@pytest.mark.parametrize("slot", [-1, 3])
def test_there_is_no_such_slot(pool: Pool, slot: int) -> None:
    with pytest.raises(ValueError, match=f"no slot {slot}; there are 3"):
        pool.step({0: "go", slot: "go"})
    assert isinstance(pool.step({0: "go"})[0], StepResult)


def test_an_action_is_text(pool: Pool) -> None:
    with pytest.raises(TypeError, match="an action is text, not int"):
        pool.step({0: "go", 1: 3})  # type: ignore[dict-item]
    assert isinstance(pool.step({1: "go"})[1], StepResult)


def test_a_slot_that_never_began_is_lost(kind: str) -> None:
    with open_pool(kind) as pool:
        assert pool.step({0: "go"})[0].kind is FailureKind.LOST


def test_an_environment_that_cannot_be_made(kind: str) -> None:
    with open_pool(kind, start="raise") as pool:
        for _ in range(2):
            results = pool.reset({0: Reset(0), 2: Reset(0)})
            failure = Failure(FailureKind.NOT_STARTED, r"LookupError: no \x1b[31mgame\x1b[0m files")
            assert results == {0: failure, 2: failure}
        assert pool.step({0: "go"})[0].kind is FailureKind.LOST


def test_environments_are_made_when_needed_and_closed_at_the_end(kind: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open_pool(kind, log=str(log)) as pool:
        pool.reset({0: Reset(0)})
        pool.reset({0: Reset(0), 1: Reset(0)})
        assert log.read_text().split() == ["made", "made"]
    assert log.read_text().split() == ["made", "made", "closed", "closed"]


def test_an_environment_that_could_not_begin_is_made_anew(kind: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open_pool(kind, log=str(log)) as pool:
        pool.reset({0: Reset(0)})
        assert pool.reset({0: Reset(0, {"do": "raise no"})})[0].kind is FailureKind.RAISED
        assert isinstance(pool.reset({0: Reset(0)})[0], StepResult)
        pool.step({0: "raise no"})
        assert isinstance(pool.reset({0: Reset(0)})[0], StepResult)
    assert log.read_text().split() == ["made", "closed", "made", "closed"]


def test_a_closed_pool_takes_no_orders(kind: str) -> None:
    pool = open_pool(kind)
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="the pool is closed"):
        pool.step({})


def test_an_unknown_environment(kind: str) -> None:
    with make_pool(kind, EnvironmentSpec(f"{HERE}:Nothing"), 1, 1, 9.0, 9.0) as pool:  # type: ignore[arg-type]
        failure = pool.reset({0: Reset(0)})[0]
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.NOT_STARTED
    assert "Nothing" in failure.detail


def test_an_environment_from_a_folder_that_only_the_program_knows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"folder_of_{kind}.py").write_text("from lab.tests.rollout.toys import Toy\n")
    monkeypatch.syspath_prepend(tmp_path)
    spec = EnvironmentSpec(f"folder_of_{kind}:Toy")
    with make_pool(kind, spec, 1, 1, 60.0, 60.0) as pool:  # type: ignore[arg-type]
        assert isinstance(pool.reset({0: Reset(0)})[0], StepResult)


@pytest.mark.parametrize("slots", [0, -1])
def test_a_pool_has_slots(slots: int) -> None:
    with pytest.raises(ValueError, match="slots must be at least 1"):
        SerialPool(EnvironmentSpec(TOY), slots)


def test_there_is_no_such_pool() -> None:
    with pytest.raises(ValueError, match="no pool 'threads'; there are: serial, processes"):
        make_pool("threads", EnvironmentSpec(TOY), 1, 1, 1.0, 1.0)  # type: ignore[arg-type]
