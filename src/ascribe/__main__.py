"""The ``ascribe`` command, also as ``python -m ascribe``."""

import os
import sys


def main() -> None:
    """Print the version at once, and leave everything else to the command line."""
    if sys.argv[1:] == ["--version"]:
        from ascribe import __version__

        try:
            print(__version__, flush=True)
        except OSError as error:
            from ascribe.cli.plain import unwritten

            sys.exit(unwritten(error))
    else:
        # The matrices of a table are small: threads would wait for each other for most of the time.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from ascribe.cli import main as run

        run()


if __name__ == "__main__":
    main()
