"""``python -m ascribe.engines.verl.one_step_off``: verl's ``one_step_off_policy`` with credit."""

from ascribe.engines.verl.runners import one_step_off

if __name__ == "__main__":
    one_step_off()
