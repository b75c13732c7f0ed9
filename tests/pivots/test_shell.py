"""Shell commands that mean the same, and those that do not. Nothing is ever run."""

import shlex
import string
import subprocess

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe.pivots import make_verifier
from ascribe.pivots.verifiers.shell_words import COMMANDS, NotUnderstood, script
from tests.pivots.made import a_turn, call

verify = make_verifier("shell")


def same(one: str, other: str) -> bool:
    accepted = verify(a_turn(one), other).accepted
    assert accepted == verify(a_turn(other), one).accepted
    return bool(accepted)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ls -la dir", "ls -a -l dir"),
        ("ls -la dir", "ls dir -al"),
        ("rm -rf build", "rm -f -r build"),
        ("rm -rf build", "rm -rf -- build"),
        ("grep -rn 'foo bar' src", 'grep -n -r "foo bar" src'),
        ("grep -rn foo src", r"grep -rn f\oo src"),
        ("head -n 5 a.txt", "head -n5 a.txt"),
        ("head --lines=5 a.txt", "head --lines 5 a.txt"),
        ("cut -d, -f1 a", "cut -f 1 -d ',' a"),
        ("cd a && ls -la", "cd a  &&  ls -al"),
        ("cat a | grep -v x | wc -l", "cat a|grep -v x|wc -l"),
        ("ls; pwd", "ls\npwd\n"),
        ("ls # all of it", "ls"),
        ("ls -l \\\n  -a", "ls -la"),
        ("make >log 2>&1", "make > log 2>&1"),
        ("grep x 2>/dev/null f", "grep x f 2>/dev/null"),
        ("echo $HOME", "echo ${HOME}"),
        ("git commit -m 'x y' -a", 'git commit -a -m "x y"'),
        ("a &&\n b", "a && b"),
    ],
)
def test_the_same(one: str, other: str) -> None:
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cp a b", "cp b a"),
        ("cut -d , -f 1 x", "cut -f , -d 1 x"),
        ("grep -e a -e b f", "grep -e b -e c f"),
        ("rm -f -i x", "rm -i -f x"),
        ("cp -n -f a b", "cp -f -n a b"),
        ("ls && pwd", "ls; pwd"),
        ("ls && pwd", "ls || pwd"),
        ("ls && pwd", "pwd && ls"),
        ("a | b", "b | a"),
        ("make >log 2>&1", "make 2>&1 >log"),
        ("make >log", "make >>log"),
        ("echo '$HOME'", "echo $HOME"),
        ('echo "$HOME"', "echo $HOME"),
        ("ls '*.py'", "ls *.py"),
        ("ls -- -l", "ls -l"),
        ("tool -a -b x", "tool -b -a x"),
        ("find . -name x -delete", "find . -delete -name x"),
        ("A=1 ls", "ls"),
        ("ls -l", "ls -L"),
        ("rm x", "rm -r x"),
        ("echo a b", "echo 'a b'"),
        ("echo `id`", "echo 'id'"),
        ("(ls)", "ls"),
        ("ls &", "ls"),
        ("ls", ""),
    ],
)
def test_not_the_same(one: str, other: str) -> None:
    assert not same(one, other)


@pytest.mark.parametrize(
    "text",
    [
        "echo $(id)",
        "echo `id`",
        'echo "$(id)"',
        "cat <<EOF\nx\nEOF",
        "for i in a b; do echo $i; done",
        "if true; then ls; fi",
        "(cd a; ls)",
        "diff <(ls a) <(ls b)",
        "f() { ls; }",
        "sleep 9 &",
        "echo 'a",
        'echo "a',
        "echo a\\",
        "ls >",
        "ls &&",
        "| ls",
        "ls ; && pwd",
        "echo ${a:-b}",
        "ls -l*",
        "head -n",
        "",
        "x" * 30_000,
    ],
)
def test_what_is_not_understood_is_the_same_as_itself_alone(text: str) -> None:
    with pytest.raises(NotUnderstood):
        script(text)
    if text.strip():
        assert same(text, f" {text} ")
        assert not same(text, text + "x")


def test_the_command_is_found_in_a_call_or_a_block() -> None:
    demonstrated = a_turn(call("bash", command="ls -la", timeout=5))
    assert verify(demonstrated, call("bash", timeout=5, command="ls -al")).accepted
    assert not verify(demonstrated, call("bash", timeout=9, command="ls -la")).accepted
    assert not verify(demonstrated, call("zsh", timeout=5, command="ls -la")).accepted
    assert verify(a_turn("ls -la"), "I look around.\n```bash\nls -al\n```").accepted
    assert verify(a_turn("<action>ls -la</action>"), "<think>a</think>ls -al").accepted


words = st.text(string.ascii_letters + string.digits + " .*$'\"\\;|&<>()#~", min_size=1, max_size=8)


@given(st.sampled_from(["grep", "ls", "tool"]), st.lists(words, max_size=4))
def test_quoting_does_not_count(name: str, operands: list[str]) -> None:
    assume(not any(word.startswith("-") for word in operands))
    one = shlex.join([name, *operands])
    other = " ".join([name, *('"' + _escaped(word) + '"' for word in operands)])
    assert script(one) == script(other)


def _escaped(word: str) -> str:
    return "".join(f"\\{letter}" if letter in '$`"\\' else letter for letter in word)


@given(st.sampled_from(sorted(COMMANDS)), st.data())
def test_flags_that_do_not_overrule_each_other_may_stand_anywhere(
    name: str, data: st.DataObject
) -> None:
    known = COMMANDS[name]
    taken = known.values + known.attached + "".join(known.rivals)
    letters = [letter for letter in string.ascii_letters if letter not in taken]
    flags = data.draw(st.lists(st.sampled_from(letters), min_size=1, max_size=4, unique=True))
    operands = data.draw(st.lists(st.sampled_from("abc"), max_size=3))
    one = " ".join([name, *(f"-{flag}" for flag in flags), *operands])
    mixed = data.draw(st.permutations(flags))
    place = data.draw(st.integers(0, len(operands)))
    rest = [*operands[:place], "-" + "".join(mixed), *operands[place:]]
    assert same(one, " ".join([name, *rest]))
    if len(operands) > 1 and operands != operands[::-1]:
        assert not same(one, " ".join([name, *(f"-{flag}" for flag in flags), *operands[::-1]]))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = script(text)
    except NotUnderstood:
        return
    assert found == script(text)


@given(st.text(string.ascii_letters + " -'\"$;|&<>\\#*", max_size=30))
def test_words_are_those_that_a_shell_would_see(text: str) -> None:
    """Where the shell's own rules are simple enough for shlex, the words agree."""
    assume(not set(text) & set("$;|&<>#*"))
    try:
        ((_, command),) = script(f"tool {text}")
    except NotUnderstood:
        return
    assert ["tool", *command.operands] == shlex.split(f"tool {text}")


def test_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise AssertionError("a command was run")

    for name in ("run", "Popen", "call", "check_output"):
        monkeypatch.setattr(subprocess, name, run)
    monkeypatch.setattr("os.system", run)
    assert same("rm -rf /", "rm -r -f /")
