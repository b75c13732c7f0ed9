"""The ``ascribe`` command, also as ``python -m ascribe``."""

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
        from ascribe.cli import main as run

        run()


if __name__ == "__main__":
    main()
