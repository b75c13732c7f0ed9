"""Shell commands that mean the same, and those that do not. Nothing is ever run."""

import shlex
import string
import subprocess

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe_lab.pivots import make_verifier
from ascribe_lab.pivots.verifiers.shell import COMMANDS, UnsupportedShellError, parse
from lab.tests.pivots.made import a_turn, call

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
        ("grep -rn 'foo bar' src", 'grep -n -r "foo bar" src'),
        ("grep -rn foo src", r"grep -rn f\oo src"),
        ("head -n 5 a.txt", "head -n5 a.txt"),
        ("cut -d, -f1 a", "cut -f 1 -d ',' a"),
        ("cd a && ls -la", "cd a  &&  ls -al"),
        ("cat a | grep -v x | wc -l", "cat a|grep -v x|wc -l"),
        ("ls; pwd", "ls\npwd\n"),
        ("ls # all of it", "ls"),
        ("ls -l \\\n  -a", "ls -la"),
        ("make >log 2>&1", "make > log 2>&1"),
        ("grep x 2>/dev/null f", "grep x f 2>/dev/null"),
        ("echo $HOME", "echo  $HOME"),
        ("a &&\n b", "a && b"),
        ("head -n  ", "head -n"),
        ("ls -la *.py", "ls -al *.py"),
        ("ls 'a b'/c", "ls a\\ b/c"),
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
        # Words that the shell expands are compared as they are written.
        ("echo $HOME", "echo ${HOME}"),
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
    ("one", "other"),
    [
        # Where ``--`` stands counts for git, and elsewhere before what may be a flag.
        ("git checkout -- main", "git checkout main"),
        ("git checkout v1 -- a.py", "git checkout -- v1 a.py"),
        ("git diff --cached a", "git diff a --cached"),
        ("git diff --cached -- a", "git diff -- --cached a"),
        ("rm -r -- -f", "rm -r -f"),
        ("tail -- +5 f", "tail +5 f"),
        # A backslash before a line end.
        ("echo a\\\\\nls f", "echo als f"),
        ("echo 'a\\\nb'", "echo 'ab'"),
        ("echo 2\\\n>f", "echo 2 >f"),
        ("ls # a\\\npwd", "ls"),
        # Words that are no cluster of letters.
        ("chmod -w,+x f", "chmod -x,+w f"),
        ("tail -12f log", "tail -21f log"),
        ("git diff -M50", "git diff -M05"),
        ("sed -in p f", "sed -ni p f"),
        ("ls --a", "ls -a"),
        # Flags whose order or place counts.
        ("head -n 1 -c 4 f", "head -c 4 -n 1 f"),
        ("head -n 1 --bytes=4 f", "head --bytes=4 -n 1 f"),
        (
            "grep -r --include='*.py' --exclude='test*' x .",
            "grep -r --exclude='test*' --include='*.py' x .",
        ),
        ("git log --not a b", "git log a --not b"),
        ("git log --oneline --format=%H", "git log --format=%H --oneline"),
        ("git commit -m a -m b", "git commit -m b -m a"),
        ("sed -n -e 1p -f s.sed f", "sed -n -f s.sed -e 1p f"),
        ("sed -E -e 's/(a)/b/' f", "sed -e 's/(a)/b/' -E f"),
        ("ls -t --sort=size", "ls --sort=size -t"),
        ("grep -l -L x f", "grep -L -l x f"),
        ("sort +1 -k 1 f", "sort -k 1 +1 f"),
        ("pwd x -P", "pwd -P x"),
        ("POSIXLY_CORRECT=1 ls a -l", "POSIXLY_CORRECT=1 ls -l a"),
        # What the shell puts in may be a flag, or nothing.
        ("head $a -n 1 f", "head -n 1 $a f"),
        ('head "$a" -n 1 f', 'head -n 1 "$a" f'),
        ("head -n $a -q f", "head -q -n $a f"),
        ("head -n1 * -v", "head -n1 -v *"),
        ("ls -a -l*", "ls -l* -a"),
        # Abbreviations of long names, and flags that nothing names.
        ("git commit --a", "git commit --amend"),
        ("git clone --=1 u", "git clone --depth=1 u"),
        ("ls -- -z", "ls -z"),
        ("ls -- $a", "ls $a"),
        ("sed -i.E p f", "sed -E -i. p f"),
        ("head -n", "head -n 1"),
        # Quoting inside a pattern.
        ("echo {a,b}", "echo {a\\,b}"),
        ("echo [a-z]", "echo [a'-'z]"),
        ("echo ~/a", 'echo ~"/a"'),
        ("echo $a", 'echo $a""'),
        ('tool "$@"', "tool \"$@\"''"),
        # Names, assignments and streams.
        ("'A=1' ls", "A=1 ls"),
        ("'git add' a", "git add a"),
        ("\\rm a", "rm a"),
        ("alias ls=cat; ls -A -n a", "alias ls=cat; ls -n -A a"),
        ("echo {a}>f", "echo {a} >f"),
        ("ls &>f a", "ls a &>f"),
        ("echo 12>f", "echo 12 >f"),
        ("echo $[ 1 > 2 ]", "echo $[ 1 ] > 2"),
        ("ls -a\r -l", "ls -a -l"),
        # Errors.
        ("ls && pwd", "ls && ; pwd"),
        ("ls", "; ls"),
        ("ls; pwd", "ls; ; pwd"),
    ],
)
def test_what_does_something_else_is_refused(one: str, other: str) -> None:
    assert not same(one, other)
    commands = [call("bash", command=text) for text in (one, other)]
    assert not same(commands[0], commands[1])
    assert all(same(command, command) for command in commands)


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
        "",
        "x" * 30_000,
    ],
)
def test_what_is_not_understood_is_the_same_as_itself_alone(text: str) -> None:
    with pytest.raises(UnsupportedShellError):
        parse(text)
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "```bash\ncd a\n```\nthen\n```bash\nmake\n```",
            "```bash\ncd a\n```\nthen\n```bash\nrm -rf /\n```",
        ),
        ("```bash\nls\n```\n```bash\npwd\n```", "```bash\nls\n```"),
        ("```python\nls\n```", "ls"),
        (call("bash", command="ls") + call("bash", command="pwd"), call("bash", command="ls")),
        (call("tmux", keystrokes="ls"), call("tmux", keystrokes="ls\n")),
        (call("tmux", keystrokes="python\nx 'a'\n"), call("tmux", keystrokes="python\nx a\n")),
        (call("tmux", keystrokes="ls\ta\n"), call("tmux", keystrokes="ls a\n")),
        (call("bash", command="cat <<E\nE\n\n"), call("bash", command="cat <<E\nE ")),
    ],
)
def test_what_is_not_one_command_is_compared_as_it_is(one: str, other: str) -> None:
    assert not same(one, other)
    assert same(one, one)


def test_keystrokes_that_are_a_line_are_read() -> None:
    assert same(call("tmux", keystrokes="ls -la\n"), call("tmux", keystrokes="ls  -al\n"))


words = st.text(string.ascii_letters + string.digits + " .*$'\"\\;|&<>()#~", min_size=1, max_size=8)


@given(st.sampled_from(["grep", "ls", "tool"]), st.lists(words, max_size=4))
def test_quoting_does_not_count(name: str, operands: list[str]) -> None:
    assume(not any(word.startswith("-") for word in operands))
    one = shlex.join([name, *operands])
    other = " ".join([name, *('"' + _escaped(word) + '"' for word in operands)])
    assert parse(one) == parse(other)


def _escaped(word: str) -> str:
    return "".join(f"\\{letter}" if letter in '$`"\\' else letter for letter in word)


@given(st.sampled_from(sorted(COMMANDS)), st.data())
def test_flags_that_do_not_overrule_each_other_may_stand_anywhere(
    name: str, data: st.DataObject
) -> None:
    known = COMMANDS[name]
    free = sorted(set(known.switches).difference(*known.rivals))
    assume(free)
    flags = data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=4, unique=True))
    operands = data.draw(st.lists(st.sampled_from("abc"), max_size=3))
    one = [f"-{flag}" for flag in flags]
    other = [f"-{''.join(data.draw(st.permutations(flags)))}"]
    place = data.draw(st.integers(0, len(operands)))
    rest = [*operands[:place], *other, *operands[place:]]
    assert same(" ".join([name, *one, *operands]), " ".join([name, *rest]))
    if operands != operands[::-1]:
        assert not same(" ".join([name, *one, *operands]), " ".join([name, *one, *operands[::-1]]))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse(text)
    except UnsupportedShellError:
        return
    assert found == parse(text)


@given(st.text(string.ascii_letters + " -'\"$;|&<>\\#*", max_size=30))
def test_words_are_those_that_a_shell_would_see(text: str) -> None:
    """Where the shell's own rules are simple enough for shlex, the words agree."""
    assume(not set(text) & set("$;|&<>#*"))
    try:
        (command,) = parse(f"tool {text}")
    except UnsupportedShellError:
        return
    assert ["tool", *command.operands] == shlex.split(f"tool {text}")


def test_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise AssertionError("a command was run")

    for name in ("run", "Popen", "call", "check_output"):
        monkeypatch.setattr(subprocess, name, run)
    monkeypatch.setattr("os.system", run)
    assert same("rm -rf /", "rm -r -f /")
