"""Does SmolLM2-135M learn TextCraft with ``ascribe train --engine trl``, on a CPU?

Goals of depth 1 and 2, after the warm-up of ``docs/warmup.md``, by the config
``examples/train/textcraft_smollm2.yaml``. Before and after, all goals of these depths that are in
neither the warm-up nor the training are played once each, sampled at the temperature of training.
``success_low`` and ``success_high`` are Wilson's interval for as many trials as there are goals.
One run with one seed says whether it learns; it says nothing about one recipe against another.

    python benchmarks/learning_trl.py --warm warm --run runs/learning
"""

from common import ROOT
from learning import Learning, measure

PHASES = ("rollout", "credit", "logprobs", "update")

if __name__ == "__main__":
    measure(
        Learning(
            "learning_trl",
            "trl",
            ROOT / "examples" / "train" / "textcraft_smollm2.yaml",
            depths=(1, 2),
            repeats=1,
            phases={name: f"ascribe/seconds/{name}" for name in PHASES},
        )
    )
