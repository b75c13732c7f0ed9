"""Repository: what an action does, what the agent sees, the true state, and the expert."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec

import numpy as np

from ascribe.steps.errors import InputError
from ascribe_lab.envs.protocol import Info, MissingExtraError, Outcome, Start, TextEnvironment
from ascribe_lab.envs.repository.sandbox import Ran, SandboxError, check_sandbox, pack, run
from ascribe_lab.envs.repository.tasks import TESTS, Project, make_project
from ascribe_lab.envs.texts import clean

TEST = "python -m pytest -q"
SUBMIT = "submit"
LONGEST = 10_000
"""Characters of a command, and of its output that is shown."""
COMMIT = (
    "git init -q -b main . && git add README.md *test*.py && git commit -q -m 'Describe it' && "
    "git add . && git commit -q -m 'Write it' && pwd && git log --oneline && ls"
)
SUMMARY = re.compile(r"(?m)^.*\b(?:passed|failed|errors?)\b.* in (\d+\.\d+s)")
FAILED = re.compile(r"(?m)^(?:FAILED|ERROR) (\S+)")


@dataclass
class WorkingCopy:
    """An episode: the folder, and what the agent has learnt about it."""

    project: Project
    generator: np.random.Generator
    clock: float
    name: str
    """Where the folder stands."""
    variables: dict[str, str]
    folder: bytes
    files: dict[str, bytes] = field(default_factory=dict)
    results: str = "not run"
    """Tests that failed when they last ran."""
    tested: str = ""
    """The files when the tests last ran."""
    read: set[str] = field(default_factory=set)
    last: str = "ls"

    @property
    def digest(self) -> str:
        """A hash of all files but git's."""
        parts = [f"{path}\0{sha256(data).hexdigest()}" for path, data in self.files.items()]
        return sha256("\n".join(sorted(parts)).encode(errors="replace")).hexdigest()[:16]

    def text(self, path: str) -> str:
        """A file, or nothing."""
        return self.files.get(path, b"").decode(errors="replace")


class Repository(TextEnvironment[WorkingCopy]):
    """A repository with bugs. See ``docs/environments/external.md``; runs what a model writes.

    Args:
        bugs: numbers of bugs; one of them is drawn for each task.
        horizon: number of commands after which an episode is truncated.
        live: whether to show the machine's own folder names, dates and durations, which differ in
            every episode; otherwise they follow from the seed.
        listed: whether to list ``example_actions`` as admissible actions, for prompts of the style
            ``choices``; other commands are still accepted.
        expert: whether info has ``expert_action``.

    Raises:
        SandboxError: where commands cannot be confined.
        MissingExtraError: without pytest.
    """

    file_options = None

    def __init__(
        self,
        *,
        bugs: Sequence[int] = (1, 2),
        horizon: int = 20,
        live: bool = False,
        listed: bool = False,
        expert: bool = False,
    ) -> None:
        super().__init__(horizon=horizon, expert=expert)
        if not bugs or not all(1 <= number <= 4 for number in bugs):
            raise InputError(f"a repository has 1 to 4 bugs, not {list(bugs)}")
        if find_spec("pytest") is None:
            raise MissingExtraError("pytest", "repository")
        check_sandbox()
        self.bugs, self.live, self.listed = tuple(bugs), live, listed

    def begin(self, task: int, generator: np.random.Generator) -> Start[WorkingCopy]:
        # The repository is the task: the same number makes the same one, whatever the seed.
        project = make_project(self.bugs, np.random.default_rng(task))
        drawn = np.random.default_rng() if self.live else generator
        letters = drawn.choice(list("abcdefghijklmnopqrstuvwxyz0123456789_"), 8)
        name = f"tmp/tmp{''.join(letters)}"
        clock = time.time() if self.live else 1.77e9 + float(drawn.integers(10_000_000))
        date = f"{clock:.0f} +0000"
        variables = {
            **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "Agent"),
            **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "agent@example.org"),
            **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), date),
            **dict.fromkeys(("GIT_PAGER", "PAGER"), "cat"),
            **dict.fromkeys(("PYTHONDONTWRITEBYTECODE", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"), "1"),
            "PYTEST_ADDOPTS": "-p no:cacheprovider --tb=line",
            "PYTHONHASHSEED": "0",
            "LC_ALL": "C.UTF-8",
        }
        files = {path: stages[0] for path, stages in project.stages.items()}
        episode = WorkingCopy(project, drawn, clock, name, variables, pack(files, name))
        done = _committed(episode.folder, name, tuple(variables.items()))
        _, shown = self._show(episode, done)
        task_text = f"{project.issue} Mend the code, not the tests; then: {SUBMIT}"
        return Start(episode, shown, task_text, project.kind)

    def act(self, episode: WorkingCopy, action: str) -> Outcome:
        command = clean(action[: LONGEST + 1]).strip()
        if command == SUBMIT:
            won = self._solved(episode)
            return Outcome("Submitted.", float(won), terminated=True, won=won)
        try:
            if not command or len(command) > LONGEST:
                raise SandboxError(f"a command has 1 to {LONGEST:,} characters")
            done = run(command, episode.folder, episode.name, episode.variables)
        except SandboxError as error:
            return Outcome(_shown(-1, f"{error}. Nothing has changed.\n"), valid=False)
        valid, shown = self._show(episode, done)
        episode.last = command if valid else episode.last
        episode.read |= {path for path in episode.project.stages if path in command}
        return Outcome(shown, valid=valid)

    def _show(self, episode: WorkingCopy, done: Ran) -> tuple[bool, str]:
        """Whether bash could carry out a command, and what the agent sees of it."""
        episode.folder, episode.files = done.folder, done.files
        output = clean(done.output)
        if len(output) > LONGEST:  # before anything is looked for: hostile output is slow to search
            half, left_out = LONGEST // 2, len(output) - LONGEST
            output = f"{output[:half]}\n({left_out} characters left out)\n{output[-half:]}"
        if SUMMARY.search(output):
            episode.results = " ".join(sorted(FAILED.findall(output))) or "passed"
            episode.tested = episode.digest
        if self.live:
            episode.clock = time.time()
        else:
            seconds = f"{episode.generator.uniform(0.01, 0.1):.2f}s"
            output = SUMMARY.sub(lambda line: line[0].replace(line[1], seconds), output)
            episode.clock += episode.generator.uniform(0.1, 30)
        prompt = time.strftime(f"[%H:%M:%S /{episode.name}]$", time.gmtime(episode.clock))
        refused = done.code != 0 and re.search(r"(?m)^bash: ", output)
        return not refused, f"{_shown(done.code, output)}\n{prompt}"

    def _solved(self, episode: WorkingCopy) -> bool:
        """Whether the tests, as they were at first, pass with the modules as they are now."""
        files = {path: episode.text(path) for path in episode.project.stages}
        files[TESTS] = episode.project.stages[TESTS][0]
        try:
            done = run(TEST, pack(files, episode.name), episode.name, episode.variables)
        except SandboxError:
            return False
        return done.code == 0 and f"\n{episode.project.tests} passed in" in done.output

    def state_key(self, episode: WorkingCopy, observation: str) -> str:  # noqa: ARG002
        return f"files {episode.digest}, tests {episode.results}"

    def expert_action(self, episode: WorkingCopy) -> str | None:
        if episode.results == "not run":
            return TEST
        for path, stages in episode.project.stages.items():
            if episode.text(path) != stages[-1]:
                if path not in episode.read:
                    return f"cat -n {path}"
                edit = episode.project.edit(path, episode.text(path))
                return edit or f"git checkout -- {path}"
        return SUBMIT if episode.tested == episode.digest else TEST

    def admissible(self, episode: WorkingCopy) -> list[str] | None:
        # Sorted, because a model that prefers the first letter must not find the right edit there.
        return sorted(self._examples(episode)) if self.listed else None

    def more_info(self, episode: WorkingCopy) -> Info:
        return {"example_actions": self._examples(episode)}

    def _examples(self, episode: WorkingCopy) -> list[str]:
        """Commands to try: edits, the right one and one astray; a look; the last one; the end."""
        edits = [
            episode.project.edit(path, episode.text(path), astray)
            for path in episode.project.stages
            for astray in (0, 1)
        ]
        others = [f"cat -n {TESTS}", TEST, episode.last, SUBMIT]
        return list(dict.fromkeys([*filter(None, edits), *others]))


@lru_cache(maxsize=256)
def _committed(folder: bytes, name: str, variables: tuple[tuple[str, str], ...]) -> Ran:
    """The repository at first; cached, because a group begins with the same one."""
    done = run(COMMIT, folder, name, dict(variables))
    if done.code:
        raise SandboxError(f"the repository could not be made: {done.output}")
    return done


def _shown(code: int, output: str) -> str:
    """The result of a command as mini-swe-agent shows it."""
    return f"<returncode>{code}</returncode>\n<output>\n{output}</output>"
