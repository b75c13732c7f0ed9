"""Archives whose crediting is interrupted: after another call, the output is that of one run.

    python benchmarks/attack/kill_archives.py [--quick] [--seed 0] [--times 20] [--only NAME]

An archive of scattered groups is credited in small parts. ``driver``: the command is killed
(SIGKILL) at a random moment, and called again.
``disk``: it writes to a tmpfs that has room for a random part of what it writes, fails, and is
called again with more room; this needs the right to mount. ``swap``: the output of an earlier run
is replaced, and the command is killed at a random moment or, every third time, between the two
renames of the folders; after that, the old folder may be under its other name. ``writers``: two
runs of different recipes begin on one output up to two seconds apart, by a path or a URI in turn.
Runs are repeated until as many were ``interrupted``, so that they did not end by themselves (of
``writers``: one was refused). ``torn`` counts outputs that were neither absent nor those of an
unbroken run, before or after the second call.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
import scale

CREDIT = """
import os, signal, sys
from ascribe.archives import credit_archive
from ascribe.estimators import recipe

def kill(event, arguments):
    if event == "os.rename" and str(arguments[1]) == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    source, out, name, *injected = sys.argv[1:]
    if injected:
        sys.addaudithook(kill)
    credit_archive(source, out, recipe(name), memory=1, force=True)
"""
ROWS = 30_000
ATTACKS = ("driver", "disk", "swap", "writers")


def main() -> None:
    """Interrupt runs in four ways."""
    seed = {"type": int, "default": 0}
    times = {"type": int, "default": 20}
    only = {"choices": ATTACKS, "help": "one attack alone"}
    with common.Figures("attack/kill_archives", seed=seed, times=times, only=only) as figures:
        chance = random.Random(figures.options.seed)
        count = 2 if figures.quick else figures.options.times
        with tempfile.TemporaryDirectory() as folder:
            attack = Attack(Path(folder))
            for name in [figures.options.only] if figures.options.only else ATTACKS:
                runs = interrupted = torn = 0
                while interrupted < count:
                    result = getattr(attack, name)(chance)
                    if result is None:
                        break
                    runs += 1
                    interrupted += result[0]
                    torn += result[1]
                if not runs:
                    print("a tmpfs cannot be mounted here", file=sys.stderr)
                    continue
                figures.emit(name, "runs", runs, "runs", better="higher")
                figures.emit(name, "interrupted", interrupted, "runs", better="higher")
                figures.emit(name, "torn", torn, "outputs", goal=0, better="lower")


class Attack:
    """An archive, and the output of an unbroken run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source = folder, folder / "in"
        scale.archive(self.source, ROWS, "scattered")
        whole = scale.pq.read_table(self.source)
        scale.pq.write_table(whole, self.source / "00000.parquet", row_group_size=1000)
        started = time.monotonic()
        self.start(folder / "out").wait()
        self.seconds = time.monotonic() - started
        self.expected, self.runs = contents(folder / "out"), 0
        self.start(folder / "old", "grpo").wait()
        self.old = contents(folder / "old")
        if not self.expected or not self.old:
            raise SystemExit("the unbroken run failed")

    def start(self, out: object, name: str = "gigpo", *words: str) -> "subprocess.Popen[bytes]":
        """Begin to credit the archive."""
        command = [sys.executable, "-c", CREDIT, str(self.source), str(out), name, *words]
        return subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)

    def judge(self, out: Path, *, interrupted: bool) -> tuple[bool, bool]:
        """Call it again; whether it was interrupted, and whether an output was torn."""
        torn = contents(out) not in ([], self.expected)
        if interrupted:
            self.start(out).wait()
        return interrupted, torn or contents(out) != self.expected

    def driver(self, chance: random.Random) -> tuple[bool, bool]:
        """Kill the command."""
        out = self.folder / "driver"
        shutil.rmtree(out, ignore_errors=True)
        process = self.start(out)
        time.sleep(chance.uniform(0.2, 1.0) * self.seconds)
        interrupted = process.poll() is None
        if interrupted:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return self.judge(out, interrupted=interrupted)

    def swap(self, chance: random.Random) -> tuple[bool, bool]:
        """Kill the command while it replaces the output of an earlier run."""
        out, self.runs = self.folder / "swap", self.runs + 1
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.folder / "old", out)
        injected = self.runs % 3 == 1
        process = self.start(out, "gigpo", *["kill"] * injected)
        if not injected:
            time.sleep(chance.uniform(0.2, 1.0) * self.seconds)
        interrupted = injected or process.poll() is None
        if not injected and interrupted:
            os.killpg(process.pid, signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        between = list(self.folder.glob(".swap.*.old"))
        whole = contents(out) in (self.old, self.expected)
        if injected:
            whole = killed and not out.exists() and [contents(one) for one in between] == [self.old]
        if interrupted:
            self.start(out).wait()
        left = [*self.folder.glob(".swap.*.old"), *self.folder.glob(".swap.*.draft")]
        return interrupted, not whole or contents(out) != self.expected or bool(left)

    def writers(self, chance: random.Random) -> tuple[bool, bool]:
        """Begin two runs on one output, of which the second may be refused."""
        out, self.runs = self.folder / "writers", self.runs + 1
        shutil.rmtree(out, ignore_errors=True)
        address = f"file://{out}" if self.runs % 2 else out
        both = [self.start(address, "gigpo")]
        time.sleep(chance.uniform(0.1, 2.0))
        both.append(self.start(address, "grpo"))
        codes = [process.wait() for process in both]
        if all(codes):
            return True, True
        last = self.expected if codes[1] else self.old
        return any(codes), contents(out) != last

    def disk(self, chance: random.Random) -> tuple[bool, bool] | None:
        """Write to a disk that becomes full."""
        place = self.folder / "disk"
        place.mkdir(exist_ok=True)
        size = sum(file.stat().st_size for file in self.source.iterdir())
        room = int(chance.uniform(0.1, 2.0) * size)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(place)]
        if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
            return None
        try:
            interrupted = self.start(place / "out").wait() != 0
            more = ["mount", "-o", "remount,size=1g", str(place)]
            subprocess.run(more, check=True)
            return self.judge(place / "out", interrupted=interrupted)
        finally:
            subprocess.run(["umount", str(place)], check=True)


def contents(folder: Path) -> list[str]:
    """The digests of the files of a folder, by name."""
    files = sorted(folder.glob("*")) if folder.exists() else []
    return [sha256(file.read_bytes()).hexdigest() for file in files]


if __name__ == "__main__":
    main()
