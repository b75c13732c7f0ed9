"""Kills and signals at random moments of ``ascribe rollout``, which is then resumed.

    python benchmarks/attack/kill_rollout.py [--quick] [--seed 0] [--only kills|signals|workers]

- ``kills``: the command is killed (SIGKILL) at 200 random moments. The same command is run again,
  and killed again, until its rollout is complete.
- ``signals``: the same with 60 signals of six kinds.
- ``workers``: 34 times a worker of the pool is killed while the command runs.

The output holds an older rollout at first. After each kill it must be that one or the new one, byte
by byte; a rollout that was completed must be that of an unbroken run; no worker may be left.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import ROOT, Figures

from ascribe_lab.envs.ezpoints import EZPoints
from ascribe_lab.rollout import journal_beside

MARK = "ASCRIBE_ATTACK"
"""A variable by which the processes of a command are found, whoever is their parent."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
PATIENCE = 30.0
"""Seconds in which everything must have ended after a signal."""


class SlowPoints(EZPoints):
    """EZPoints with episodes of different lengths and steps that take time."""

    def reset(self, **arguments: Any) -> Any:
        """As EZPoints does; the seed decides the length."""
        self.horizon = 2 + arguments["seed"] % 6
        return super().reset(**arguments)

    def step(self, action: str) -> Any:
        """As EZPoints does, 3 milliseconds later."""
        time.sleep(0.003)
        return super().step(action)


@dataclass
class Attack:
    """The command under attack, and what became of it."""

    folder: Path
    rng: random.Random
    whole: bytes = b""
    """The output of an unbroken run."""
    old: bytes = b""
    startup: float = 0.0
    """Seconds until the first episode is in the journal."""
    seconds: float = 0.0
    """Seconds of an unbroken run after that."""
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """Where the rollouts are written."""
        return self.folder / "rollouts.parquet"

    def count(self, name: str, number: int = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + number

    def start(self, seed: int = 1, workers: int = 1) -> "subprocess.Popen[bytes]":
        """The command, in a session of its own."""
        words = ["--env", "kill_rollout:SlowPoints", "--model", "random", "--max-turns", "8"]
        words += ["--groups", "16", "--size", "4", "--seed", str(seed), "--retries", "50"]
        words += ["--workers", str(workers)]
        program = "from ascribe.cli import main; main()"
        paths = [
            str(ROOT / "src"),
            str(ROOT / "lab/src"),
            str(Path(__file__).parent),
            str(ROOT / "benchmarks"),
        ]
        return subprocess.Popen(
            [sys.executable, "-c", program, "rollout", *words, "--out", str(self.out)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), MARK: str(self.folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def prepare(self) -> None:
        """An old rollout, and an unbroken one with its times."""
        assert self.start(seed=2).wait() == 0
        self.old = self.out.read_bytes()
        began = time.monotonic()
        process = self.start()
        self.await_journal(process)
        self.startup = time.monotonic() - began
        assert process.wait() == 0
        self.seconds = time.monotonic() - began - self.startup
        self.whole = self.out.read_bytes()
        assert self.whole != self.old
        self.begin()

    def begin(self) -> None:
        """The old rollout is there, and no journal."""
        self.out.write_bytes(self.old)
        journal_beside(self.out).unlink(missing_ok=True)

    def await_journal(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until an episode was added to the journal, or the command has ended."""
        journal = journal_beside(self.out)
        before = journal.stat().st_size if journal.exists() else 0
        while process.poll() is None:
            if journal.exists() and journal.stat().st_size > before:
                return
            time.sleep(0.002)

    def random_moment(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait for a random moment: of the whole run, or, in three of four cases, of its play."""
        if self.rng.random() < 0.25:
            time.sleep(self.rng.random() * (self.startup + self.seconds))
        else:
            self.await_journal(process)
            time.sleep(self.rng.random() ** 2 * self.seconds)  # less is left of a resumed run

    def check(self) -> None:
        """After the end of a command: no process is left, and the output is whole."""
        deadline = time.monotonic() + PATIENCE
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.003)
        if left := self.processes():
            self.count("processes_left", len(left))
            for process in left:
                os.kill(process, signal.SIGKILL)
        contents = self.out.read_bytes()
        if contents not in {self.old, self.whole}:
            self.count("damaged_outputs")
        if journal_beside(self.out).exists():
            self.count("journals_left")

    def finish(self) -> None:
        """Run the command to its end, and compare its output with that of an unbroken run."""
        if self.start().wait() != 0:
            self.count("failed_commands")
        self.completed()

    def completed(self) -> None:
        """Compare the output of a command that has succeeded with that of an unbroken run."""
        self.check()
        self.count("completed_rollouts")
        if self.out.read_bytes() != self.whole or journal_beside(self.out).exists():
            self.count("different_tables")
        self.begin()

    def processes(self, of: int | None = None) -> list[int]:
        """Processes of the command that are still there; those of one parent, or all."""
        mark = f"{MARK}={self.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                marked = mark in (entry / "environ").read_bytes().split(b"\0")
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if marked and state not in "ZX" and (of is None or int(parent) == of):
                found.append(int(entry.name))
        return found


def interrupt(attack: Attack, signals: list[signal.Signals]) -> None:
    """Send each signal at a random moment of a run; resume; now and then let the command end."""
    while attack.counts.get("signals", 0) < len(signals):
        process = attack.start()
        attack.random_moment(process)
        if process.poll() is None:
            process.send_signal(signals[attack.counts.get("signals", 0)])
            attack.count("signals")
        else:
            attack.count("ended_before")
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            attack.count("hung_commands")
            process.kill()
            process.wait()
        attack.check()
        if attack.out.read_bytes() == attack.whole and not journal_beside(attack.out).exists():
            attack.count("completed_rollouts")
            attack.begin()
        elif attack.rng.random() < 0.15:
            attack.finish()
    attack.finish()


def kill_workers(attack: Attack, kills: int) -> None:
    """Kill workers at random moments until there were so many kills; every command must succeed.

    A worker has the time to start again: one that dies five times in a row without a single result
    ends the command, which then has to be resumed.
    """
    while attack.counts.get("signals", 0) < kills:
        process = attack.start(workers=2)
        while process.poll() is None:
            time.sleep((0.5 + attack.rng.random()) * attack.startup / 2)
            workers = attack.processes(of=process.pid)
            if workers and attack.counts.get("signals", 0) < kills:
                os.kill(attack.rng.choice(workers), signal.SIGKILL)
                attack.count("signals")
        if process.returncode == 0:
            attack.completed()
        else:
            attack.count("failed_commands")
            attack.finish()


@contextmanager
def attacked(seed: int) -> Iterator[Attack]:
    """An attack in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        attack = Attack(Path(folder), random.Random(seed))
        attack.prepare()
        yield attack


def main() -> None:
    """Run the campaigns and print what they found."""
    cases = ("kills", "signals", "workers")
    options: dict[str, dict[str, Any]] = {
        "seed": {"type": int, "default": 0},
        "only": {"choices": cases},
    }
    with Figures("attack/kill_rollout", **options) as figures:
        for case in [figures.options.only] if figures.options.only else cases:
            with attacked(figures.options.seed) as attack:
                if case == "kills":
                    interrupt(attack, [signal.SIGKILL] * (6 if figures.quick else 200))
                elif case == "signals":
                    interrupt(attack, [*SIGNALS, signal.SIGKILL] * (1 if figures.quick else 10))
                else:
                    kill_workers(attack, 4 if figures.quick else 34)
            counts = attack.counts
            for name in ("signals", "ended_before", "journals_left", "completed_rollouts"):
                figures.emit(case, name, counts.get(name, 0), "times", "higher")
            for name in (
                *("damaged_outputs", "different_tables", "processes_left"),
                *("hung_commands", "failed_commands"),
            ):
                figures.emit(case, name, counts.get(name, 0), "times", "lower", goal=0.0)


if __name__ == "__main__":
    main()
