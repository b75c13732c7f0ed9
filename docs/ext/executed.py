"""Run the code blocks of a page and put what they print where the page shows it.

``python`` blocks of a page share one namespace; what one prints belongs into the next ``text``
block. A block whose first line is ``# NAME.py`` is a file of that name: it is written, not run.
``console`` blocks hold lines that start with ``$ `` and what those commands print, on a terminal of
100 columns. All blocks of a page run in one folder, in order, which has a link to ``examples``.
Blocks of other languages are not run. A picture that the blocks make in that folder, and that the
page shows from its own folder, is copied there.

    python docs/ext/executed.py README.md docs/*.md docs/estimators/*.md

writes the pages anew; the tests only compare.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
PICTURE = re.compile(r"^!\[.*\]\(([\w-]+\.svg)\)$", re.MULTILINE)
MARK = "-- next command --"


def replay(page: str, folder: Path) -> str:
    """The page with every output as the blocks really print it, run in ``folder``."""
    namespace: dict[str, Any] = {"__name__": "page"}
    unshown = ""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(Path(__file__).parents[2] / "examples")

    def rewrite(block: re.Match[str]) -> str:
        nonlocal unshown
        language, body = block[1], block[2]
        if language == "text":
            body, unshown = unshown or body, ""
        elif unshown:
            raise ValueError(f"no text block shows what a python block prints: {unshown!r}")
        elif language == "python":
            unshown = _python(body, namespace, folder)
        else:
            body = _console(body, folder)
        return f"```{language}\n{body}```"

    written = BLOCK.sub(rewrite, page)
    if unshown:
        raise ValueError(f"no text block shows what the last python block prints: {unshown!r}")
    return written


def _python(code: str, namespace: dict[str, Any], folder: Path) -> str:
    if name := FILE.match(code):
        (folder / name[1]).write_text(code, encoding="utf-8")
        return ""
    printed = io.StringIO()
    with chdir(folder), redirect_stdout(printed):
        exec(compile(code, "page", "exec"), namespace)
    return _tidy(printed.getvalue())


def _console(body: str, folder: Path) -> str:
    """One shell runs the commands, so that ``$?`` is the exit code of the command before."""
    commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
    script = "code=0\n" + "".join(
        f"echo '{MARK}'; (exit $code)\n{command}\ncode=$?\n" for command in commands
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={"PATH": path, "COLUMNS": "100", "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    outputs = shell.stdout.split(f"{MARK}\n")[1:]
    pairs = zip(commands, outputs, strict=True)
    return "".join(f"$ {command}\n{_tidy(output)}" for command, output in pairs)


def _tidy(printed: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def main() -> None:
    """Write the pages named on the command line anew."""
    for name in sys.argv[1:]:
        page = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            text = page.read_text(encoding="utf-8")
            page.write_text(replay(text, Path(folder)), encoding="utf-8")
            for picture in PICTURE.findall(text):
                shutil.copy(Path(folder) / picture, page.parent / picture)


if __name__ == "__main__":
    main()
