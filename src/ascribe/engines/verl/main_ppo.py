"""``python -m ascribe.engines.verl.main_ppo``: verl's ``main_ppo`` with credit for steps."""

from ascribe.engines.verl.runners import main_ppo

if __name__ == "__main__":
    main_ppo()
