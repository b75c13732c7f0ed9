"""One wrong bit in a column that the report shows: the file is refused, and no page is written."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from tests.report.toys import sound


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("column", ["state", "action", "reward", "won", "observation", "response"])
def test_every_column_that_is_shown(tmp_path: Path, column: str, *, dictionary: bool) -> None:
    rows = [
        row | {"observation": f"You see {n}.", "response": f"I go {n}.", "won": bool(row["reward"])}
        for n, row in enumerate(sound(groups=2))
    ]
    file, page = tmp_path / "steps.parquet", tmp_path / "report.html"
    pq.write_table(
        pa.Table.from_pylist(rows),
        file,
        compression="none",
        use_dictionary=dictionary,
        write_page_checksum=True,
    )
    row_group = pq.ParquetFile(file).metadata.row_group(0)
    places = {row_group.column(i).path_in_schema: row_group.column(i) for i in range(len(rows[0]))}
    start = places[column].dictionary_page_offset or places[column].data_page_offset
    data = bytearray(file.read_bytes())
    data[start + places[column].total_compressed_size - 2] ^= 1
    file.write_bytes(data)
    done = CliRunner().invoke(app, ["report", str(file), "--out", str(page), "--json"])
    assert done.exit_code == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["kind"] == "unreadable_file"
    assert not page.exists()
