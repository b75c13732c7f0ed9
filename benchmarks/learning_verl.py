"""Does SmolLM2-135M learn easy goals of TextCraft with ``ascribe train --engine verl``, on a CPU?

Goals of depth 1, after the warm-up of ``docs/warmup.md``, by the config
``examples/train/textcraft_smollm2_verl.yaml``. Before and after, all goals of this depth that are
in neither the warm-up nor the training are played four times each, sampled at the temperature of
training. ``success_low`` and ``success_high`` are Wilson's interval for as many trials as there are
goals. One run with one seed says whether it learns, and no more.

    python benchmarks/learning_verl.py --warm warm --run runs/learning
"""

from common import ROOT
from learning import Learning, measure

PHASES = ("gen", "old_log_prob", "adv", "update_actor", "update_weights", "save_checkpoint")

if __name__ == "__main__":
    measure(
        Learning(
            "learning_verl",
            "verl",
            ROOT / "examples" / "train" / "textcraft_smollm2_verl.yaml",
            depths=(1,),
            phases={name: f"timing_s/{name}" for name in PHASES},
            repeats=4,
        )
    )
