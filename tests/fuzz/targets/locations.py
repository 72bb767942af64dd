"""Locations of rows: the text of an option or a flag."""

from coordinator.sources.location import open_source


def target(data: bytes) -> None:
    try:
        source = open_source(data.decode(errors="surrogateescape"))
    except ValueError:
        return
    assert source.topic
    assert hash(source) == hash(source)  # They travel between processes and are kept by value.


def seeds():
    yield b"/logs/flights"
    for kind in ("arrow", "segments", "parquet", "jsonl", "csv"):
        yield f"{kind}:/logs/flights".encode()
    yield b"kafka://one:9092,two:9092/flights#security.protocol=SSL&client.id=x"
    yield b"sql:postgresql://host/db#table=flights&key=id&partition_by=airport"
    yield b"sql:sqlite:///file.db#table=a.b&spread=8"
