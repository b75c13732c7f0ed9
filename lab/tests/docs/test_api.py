"""The laboratory's public names have examples, too."""

from pathlib import Path

import pytest

from tests.doctests import failures, listed


@pytest.mark.parametrize("name", listed("ascribe_lab"))
def test_its_example_is_true(name: str, tmp_path: Path) -> None:
    assert failures(name, tmp_path) == ""
