"""``python -m ascribe_lab.train.verl.main_ppo``: verl's command on a run of ``ascribe train``."""

from ascribe.engines.verl import runners
from ascribe_lab.train.verl.runner import EpisodeRunner
from ascribe_lab.train.verl.watch import watching

if __name__ == "__main__":
    with watching():
        runners.main_ppo(EpisodeRunner)
