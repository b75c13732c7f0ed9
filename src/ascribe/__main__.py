"""``python -m ascribe``: the ``ascribe`` command."""

from ascribe.cli import main

main()
