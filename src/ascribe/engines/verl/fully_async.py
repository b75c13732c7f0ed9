"""``python -m ascribe.engines.verl.fully_async``: verl's ``fully_async_main`` with credit."""

from ascribe.engines.verl.runners import fully_async

if __name__ == "__main__":
    fully_async()
