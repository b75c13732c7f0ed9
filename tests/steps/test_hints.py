"""What error messages add: the command to install, the page to read, the name that was meant."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ascribe.steps import hints
from ascribe.steps.hints import command_line, option, setting
from ascribe.steps.problems import ProblemKind

ROOT = Path(__file__).parents[2]
RELEASE = "pip install 'ascribe-rl[trl,report]'"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'ascribe-rl[trl,report]'"),
        (
            {"url": "file:///wheels/a.whl", "archive_info": {}},
            "pip install 'ascribe-rl[trl,report]'",
        ),
        ({"url": "file:///my%20clone", "dir_info": {}}, "pip install '/my clone[trl,report]'"),
        (
            {"url": "file:///clone", "dir_info": {"editable": True}},
            "pip install -e '/clone[trl,report]'",
        ),
    ],
)
def test_the_command_fits_the_installation(
    origin: Any, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Distribution())
    hints._source.cache_clear()
    try:
        assert hints.install("trl", "report") == command
    finally:
        hints._source.cache_clear()


def test_without_metadata_the_command_is_that_of_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    hints._source.cache_clear()
    try:
        assert hints.install("report") == "pip install 'ascribe-rl[report]'"
    finally:
        hints._source.cache_clear()


def test_every_page_that_a_message_names_is_there() -> None:
    sources = [path.read_text(encoding="utf-8") for path in ROOT.glob("**/src/**/*.py")]
    named = {name for text in sources for name in re.findall(r"\{page\('([\w/]+)'\)\}", text)}
    assert {"format", "train"} <= named
    assert [name for name in named if not (ROOT / "docs" / f"{name}.md").exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.get("urls", {}) == ({"Documentation": hints.DOCS} if hints.PUBLISHED else {})


def test_a_page_is_a_file_until_the_site_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "PUBLISHED", False)
    assert hints.page("howto/state") == "docs/howto/state.md"
    assert hints.laboratory() == "pip install ./lab (in a clone of the repository)"
    monkeypatch.setattr(hints, "PUBLISHED", True)
    assert hints.page("howto/state") == f"{hints.DOCS}/howto/state.html"
    assert hints.laboratory() == "pip install ascribe-lab"


def test_no_message_or_page_installs_the_other_project() -> None:
    """``pip install ascribe`` brings a package of somebody else."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for path in (*pages, *ROOT.glob("**/src/**/*.py")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"install[^\n]{0,40}\bascribe(?!-rl|-lab)(\[|['\"`]?\s*$)", text), path


def test_the_nearest_name_is_offered() -> None:
    assert str(hints.unknown("recipe", "gigop", ["grpo", "gigpo"])) == (
        "there is no recipe 'gigop'; did you mean gigpo? there are: grpo, gigpo"
    )
    assert str(hints.unknown("recipe", "x", ["grpo"])) == "there is no recipe 'x'; there are: grpo"


@pytest.mark.slow
def test_the_wheel_is_installed_by_its_name(tmp_path: Path) -> None:
    """Built here, found by name in a folder of wheels, without an index."""
    for name in ("hatchling", "hatch_vcs", "pip"):
        if find_spec(name) is None:
            pytest.skip(f"needs {name}")
    wheels, target = tmp_path / "wheels", tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run([*pip, *build], check=True, cwd=tmp_path)
    (wheel,) = wheels.iterdir()
    assert re.fullmatch(r"ascribe_rl-[\w.+]+-py3-none-any\.whl", wheel.name)
    local = ["--no-index", "--find-links", str(wheels), "--no-deps", "--target", str(target)]
    subprocess.run([*pip, "install", *local, hints.DISTRIBUTION], check=True, cwd=tmp_path)
    wrong = subprocess.run([*pip, "install", *local, "ascribe"], check=False, capture_output=True)
    assert wrong.returncode != 0
    code = (
        "import ascribe; from ascribe.steps.hints import install; "
        "print(ascribe.__file__, install('report'))"
    )
    environment = {"PYTHONPATH": str(target), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    assert done.stdout.split(maxsplit=1) == [
        str(target / "ascribe" / "__init__.py"),
        "pip install 'ascribe-rl[report]'\n",
    ]
    assert (target / "bin" / "ascribe").exists()


def test_a_message_names_arguments_as_its_reader_writes_them() -> None:
    missing = ProblemKind.MISSING_COLUMN
    assert option("reward", "FIELD") == 'reward="FIELD"'
    assert option("force", True) == "force=True"
    assert setting("revisits", "first") == 'revisits="first"'
    assert 'columns={"reward": "score"}' in missing.advice
    with command_line():
        assert option("form", "gateway") == "--format gateway"
        assert option("force", True) == option("force") == "--force"
        assert setting("gamma", 0.5) == "--set gamma=0.5"
        assert setting("revisits", "first") == "--set revisits=first"
        assert "--column reward=score" in missing.advice
    assert option("memory") == "memory"
