"""mini-swe-agent on four small tasks: ``python mini.py http://127.0.0.1:8912``.

The commands that the model writes run in bubblewrap: in a folder of their own, without a network,
without variables of this process, with limits of time, processor and file size.
"""

import os
import sys
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

os.environ |= {"MSWEA_SILENT_STARTUP": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

from attempts import play
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.extra.bubblewrap import BubblewrapEnvironment
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

SYSTEM = """\
You change files with shell commands. Answer with one command in a block and nothing else. \
When the task is done, the command is: echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT

Examples:
Write the word cat to the file a.txt.
```bash
echo cat > a.txt
```
Write 2 + 2 to the file b.txt.
```bash
echo 4 > b.txt
```
Copy the file c.txt to d.txt.
```bash
cp c.txt d.txt
```"""
TASKS = {
    "word": "Write the word hello to the file answer.txt.",
    "sum": "Write 3 + 4 to the file answer.txt.",
    "copy": "Copy the file in.txt to out.txt.",
    "rename": "Rename the file old.txt to new.txt.",
}


BEFORE = {"in.txt": "in", "old.txt": "old"}
AFTER = {
    "word": BEFORE | {"answer.txt": "hello"},
    "sum": BEFORE | {"answer.txt": "7"},
    "copy": BEFORE | {"out.txt": "in"},
    "rename": {"in.txt": "in", "new.txt": "old"},
}
"""The files of the folder before an attempt, and after one that solves the task."""
SAMPLING = {"temperature": 1.0, "top_p": 0.6, "max_tokens": 30}
SANDBOX = [
    *("--cpu=5", "--fsize=1000000", "--nofile=64"),
    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session"),
    *("--clearenv", "--setenv", "PATH", "/usr/bin"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"),
    *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"),
]
"""Limits of prlimit, then bubblewrap and what it shows: programs, and later the folder."""


def attempt(task: str, model: str) -> float:
    """Let the agent try a task in a new folder, and score what it left there."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in BEFORE.items():
            (folder / file).write_text(f"{text}\n")
        agent = DefaultAgent(
            LitellmTextbasedModel(
                model_name="openai/smollm2",
                model_kwargs={"api_base": model, "api_key": "none", **SAMPLING},
                action_regex=r"\A[^`]*`{1,3}(?:bash|sh)?\s*([^`\n]+)",
                format_error_template="Answer with one command in a block.",
                observation_template="{{ output.output[:200] or 'It has run.' }}",
                cost_tracking="ignore_errors",
            ),
            BubblewrapEnvironment(cwd=name, timeout=5, executable="prlimit", wrapper_args=SANDBOX),
            system_template=SYSTEM,
            instance_template="{{ task }}",
            step_limit=3,
            max_consecutive_format_errors=0,
        )
        agent.run(TASKS[task])
        return score(task, {each.name: each for each in folder.iterdir()})


def score(task: str, files: dict[str, Path]) -> float:
    """A quarter for any change, a quarter for the right files, a half for the right contents."""
    texts = {
        name: None if file.is_symlink() else file.read_text(errors="replace").strip()
        for name, file in files.items()
        if file.is_file()
    }
    changed, right = texts != BEFORE, texts.keys() == AFTER[task].keys()
    return changed / 4 + right / 4 + (texts == AFTER[task]) / 2


if __name__ == "__main__":
    if which("bwrap") is None:
        sys.exit("commands of a model run only in bubblewrap; install it, for instance with apt")
    play(TASKS, attempt, sys.argv[1])
