"""The task runner of runs on episodes in Ascribe's own environments."""

from ascribe.engines.verl.runners import CreditRunner


class EpisodeRunner(CreditRunner):
    """Runs verl's trainer of the configured mode on episodes; ``data.train_files`` is the run."""

    trainers = "ascribe_lab.train.verl.episode_trainer"
    prefix = "ascribe_lab_"
