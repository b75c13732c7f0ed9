"""Compare what the commands of two source trees print as JSON, byte for byte.

    python scripts/same_numbers.py OLD_TREE NEW_TREE [FILE...]

Each file is imported, checked, searched for decisions and credited by each tree, in processes
with that tree's ``src`` on the path; without a file, that is done with the example and, where
``ASCRIBE_TEST_DATA`` names the test data, with real logs. ``compare_credit.py`` compares the
recipes on thousands of small tables. The exit code is 1 if something differs.
"""

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REAL = ("tau2_airline", "tau2_telecom", "tau_bench", "intercode_sql")
RECIPES = ("gigpo", "sbc", "events")
DIGEST = """
import hashlib, sys
import pyarrow.parquet
for path in sys.argv[1:]:
    table = pyarrow.parquet.read_table(path)
    for name in sorted(table.column_names):
        values = repr(table[name].combine_chunks().to_pylist()).encode()
        print(path, name, hashlib.sha256(values).hexdigest())
"""


def answers(tree: Path, path: Path, folder: Path) -> dict[str, str]:
    """What the commands of ``tree`` say about the file or folder at ``path``."""
    folder.mkdir()
    env = os.environ | {"PYTHONPATH": str(tree.resolve() / "src"), "COLUMNS": "200"}
    source = str(path.resolve())
    calls = {
        "import": ["import", source, "-o", "table.parquet", "--json"],
        "check": ["check", source, "--json"],
        "decisions": ["decisions", source, "--json"],
    }
    for recipe in RECIPES:
        out = f"{recipe}.parquet"
        calls[f"credit {recipe}"] = ["credit", source, "--recipe", recipe, "-o", out]
    said: dict[str, str] = {}
    for name, call in calls.items():
        done = subprocess.run(
            [sys.executable, "-m", "ascribe", *call],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        said[name] = f"exit {done.returncode}\n" + (done.stdout if "--json" in call else "")
    tables = sorted(str(table.relative_to(folder)) for table in folder.glob("*.parquet"))
    digest = subprocess.run(
        [sys.executable, "-c", DIGEST, *tables],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    said["tables"] = digest.stdout
    return said


def main() -> None:
    """Run both trees on every file and print what differs."""
    parser = argparse.ArgumentParser(description="Compare the answers of two source trees.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    chosen = parser.parse_args()
    files = chosen.files or [Path("examples/conversations.jsonl")]
    data = os.environ.get("ASCRIBE_TEST_DATA")
    if data and not chosen.files:
        files += [Path(data, "real", name) for name in REAL]
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        for place, path in enumerate(files):
            old = answers(chosen.old, path, Path(folder, f"{place}-old"))
            new = answers(chosen.new, path, Path(folder, f"{place}-new"))
            for name, before in old.items():
                if before == new[name]:
                    print(f"{path.name}: {name}: equal ({len(before.splitlines()):,} lines)")
                    continue
                different += 1
                print(f"{path.name}: {name}: differs")
                lines = difflib.unified_diff(
                    before.splitlines(), new[name].splitlines(), lineterm="", n=0
                )
                for line in list(lines)[:12]:
                    print("   ", line[:160])
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
