"""The ``ascribe`` command, also as ``python -m ascribe``."""

import sys


def main() -> None:
    """Print the version at once, and leave everything else to the command line."""
    if sys.argv[1:] == ["--version"]:
        from ascribe import __version__

        print(__version__)
    else:
        from ascribe.cli import main as run

        run()


if __name__ == "__main__":
    main()
