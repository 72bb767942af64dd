"""Files of rows in every format. The first byte chooses; the second says where to cut the file,
which is then read while it has grown to there, and again when it is whole."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.sources.file_systems import StorePath
from coordinator.sources.formats import FORMATS
from coordinator.sources.formats.base import FileFormat

FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-files-")
KINDS = sorted(FORMATS)
TEXT = {"jsonl", "csv"}
GROW = {"segments", *TEXT}


def target(data: bytes) -> None:
    if len(data) < 2:
        return
    name = KINDS[data[0] % len(KINDS)]
    kind = FORMATS[name]
    content = data[2:]
    path = Path(FOLDER.name) / f"rows{kind.suffixes[0]}"
    place, format = StorePath.of(path), FileFormat(name)
    try:
        earlier = None
        if name in GROW:
            cut = len(content) * data[1] // 256
            path.write_bytes(content[:cut])
            earlier = kind(place, cut, None, format)
        path.write_bytes(content)
        file = kind(place, len(content), None, format)
        if earlier is not None:
            assert file.rows >= earlier.rows >= 0
            assert kind(place, len(content), earlier, format).rows == file.rows
    except (ValueError, OSError, pa.ArrowException):
        return
    try:
        if file.rows == 0 or file.schema is None:
            return
        rows = sum(batch.num_rows for _, batch in file.read(0, file.rows, file.schema))
    except (ValueError, OSError, pa.ArrowException):  # Rows that do not fit, by name.
        return
    # In text an offset is a line; Parquet counts rows in several places, which may disagree.
    assert rows == file.rows or name in {"parquet", *TEXT}


def seeds():
    batch = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, "z"]})
    table = pa.Table.from_batches([batch, batch])
    contents = {
        "jsonl": b'{"a": 1, "b": "x"}\n{"a": 2, "b": null}\n\n{"a": 3}\n',
        "csv": b'a,b\n1,x\n2,"y, z"\n\n3,\n',
    }
    for name, open_writer in (("arrow", pa.ipc.new_file), ("segments", pa.ipc.new_stream)):
        sink = pa.BufferOutputStream()
        with open_writer(sink, table.schema) as writer:
            writer.write_table(table)
        contents[name] = sink.getvalue().to_pybytes()
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=4)
    contents["parquet"] = sink.getvalue().to_pybytes()
    for name, content in contents.items():
        for cut in (0, 128, 255):
            yield bytes([KINDS.index(name), cut]) + content
