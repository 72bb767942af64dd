"""Parquet files with manifests, which `read_exactly_once` reads.

    data/NAME/….parquet                 the files of a batch; readers ignore what no manifest names
    manifests/NUMBER-NAME.json          {"batches": [files], "before": the manifest before it}

A manifest names up to a hundred batches, and the manifest before it. Its content follows from the
decision and the one before, so two processes that write it write the same. A compaction is a
decision too: it names files that take the place of others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from coordinator.sources.file_systems import StorePath
from coordinator.spark.sinks.protocol import Decision, SinkRefused
from coordinator.spark.sinks.staging import files_of, new_file, stage_files, to_token

DATA, MANIFEST_FOLDER = "data", "manifests"
BLOCK = 100
"""Decisions that a manifest names itself; earlier ones are in the manifest before it."""
REPLACES = "replaces"
EMPTY: dict[str, Any] = {"batches": [], "before": "", "count": 0}
DAY_S = 86_400.0


class ParquetSink:
    """A `Sink` into a directory of Parquet files.

    Args:
        location: a path, or s3://BUCKET/PATH and the like, that drivers and executors see.
    """

    def __init__(self, location: str) -> None:
        self._folder = StorePath.of(location)
        self._data, self._manifests = self._folder / DATA, self._folder / MANIFEST_FOLDER

    @property
    def location(self) -> str:
        return f"parquet:{self._folder.absolute}"

    def stage(self, rows: Any, name: str) -> str:
        return to_token(stage_files(rows, partial(new_file, self._data), name))

    def commit(self, token: str, decision: Decision) -> None:
        manifest = self._manifests / file_name(decision.number, decision.name)
        if manifest.stat() is None:
            manifest.write(json.dumps(self._content(decision)).encode())

    def recover(self, newest: Decision) -> int:
        for number, name in ((newest.number, newest.name), _before(newest)):
            if number == 0 or (self._manifests / file_name(number, name)).stat() is not None:
                return number
        return 0

    def discard(self, token: str) -> None:
        for folder in {name.partition("/")[0] for name in self._names(token)}:
            (self._data / folder).delete_folder()

    # --- Reading ---

    def files(self, newest: Decision) -> list[StorePath]:
        """Files that count, in the order of their batches."""
        blocks: list[list[str]] = []
        content = self._of_decision(newest)
        while True:
            blocks.append(content["batches"])
            if not content["before"]:
                break
            content = self._read(content["before"])
        return [self._data / name for block in reversed(blocks) for name in block]

    # --- Compaction and clean-up ---

    def stage_compaction(self, newest: Decision, small_bytes: int) -> str:
        """Write the rows of small files into one, as a token that has it take their place.

        Returns:
            The token; empty if there are fewer than two such files.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        files = [(path, path.stat()) for path in self.files(newest)]
        small = [
            path for path, entry in files
            if entry is not None and not entry.is_folder and entry.size < small_bytes
        ]  # fmt: skip
        if len(small) < 2:
            return ""
        schemas = []
        for path in small:
            with path.open() as file:
                schemas.append(pq.read_schema(file).remove_metadata())
        schema = pa.unify_schemas(schemas)
        name = f"compacted-{newest.number:012}-{int(time.time() * 1_000)}"
        with (self._data / f"{name}/0.parquet").writer() as file:
            with pq.ParquetWriter(file, schema) as writer:
                for path in small:
                    with path.open() as one:
                        for batch in pq.ParquetFile(one).iter_batches():
                            writer.write_batch(_widened(batch, schema))
        plan = f"{name}.json"
        replaced = [f"{path.parent.name}/{path.name}" for path in small]
        content = {"add": [f"{name}/0.parquet"], "remove": replaced}
        (self._manifests / plan).write(json.dumps(content).encode())
        return json.dumps({REPLACES: plan})

    def clean(self, newest: Decision, *, older_than_s: float = DAY_S) -> list[StorePath]:
        """Delete files that do not count, and return them.

        Args:
            older_than_s: younger ones are left: they may be staged, or readers may have begun
                before a compaction. Longer than a batch or a read can take.
        """
        counting = {str(path) for path in self.files(newest)}
        chain = set(self._chain(newest))
        until_ns = (time.time() - older_than_s) * 1e9
        dropped = []
        for base in (self._data, self._manifests):
            if base.stat() is None:
                continue
            for path, entry in list(base.files_below()):
                is_needed = not counting.isdisjoint((str(path), str(path.parent)))
                if is_needed or path.name in chain or entry.modified_ns >= until_ns:
                    continue
                path.delete()
                dropped.append(path)
        return dropped

    # --- Inside ---

    def _content(self, decision: Decision) -> dict[str, Any]:  # Any: JSON.
        """Content of a decision's manifest, from the manifest before it."""
        number, name = _before(decision)
        before = file_name(number, name) if number else ""
        content = self._read(before) if before else EMPTY
        try:
            plan = json.loads(decision.token)
        except ValueError as error:
            raise SinkRefused(
                f"{self.location}: the token {decision.token[:80]} is not ours"
            ) from error
        if isinstance(plan, dict):
            return self._replaced(before, self._read(plan[REPLACES]))
        names, last = content["batches"], content["before"]
        count = content["count"]
        if count >= BLOCK:
            names, last, count = [], before, 0
        names = [*names, *(file.name for file in files_of(decision.token))]
        return {"batches": names, "before": last, "count": count + 1}

    def _replaced(self, before: str, plan: dict[str, list[str]]) -> dict[str, Any]:
        """Content after a compaction; as before, if another one was faster."""
        names: list[str] = []
        while before:
            content = self._read(before)
            names = [*content["batches"], *names]
            before = content["before"]
        gone = set(plan["remove"])
        if gone <= set(names):
            names = [*plan["add"], *(name for name in names if name not in gone)]
        return {"batches": names, "before": "", "count": BLOCK}

    def _of_decision(self, newest: Decision) -> dict[str, Any]:
        if newest.number == 0:
            return EMPTY
        manifest = file_name(newest.number, newest.name)
        is_there = (self._manifests / manifest).stat() is not None
        return self._read(manifest) if is_there else self._content(newest)

    def _chain(self, newest: Decision) -> Iterable[str]:
        """Names of the manifests that the newest one leads to, and of its plan."""
        content = self._of_decision(newest)
        yield file_name(newest.number, newest.name)
        if newest.token.startswith("{"):
            yield json.loads(newest.token)[REPLACES]
        number, name = _before(newest)
        yield file_name(number, name)
        while content["before"]:
            yield content["before"]
            content = self._read(content["before"])

    def _read(self, manifest: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self._manifests / manifest).read())
        return content

    def _names(self, token: str) -> list[str]:
        if token.startswith("{"):
            names: list[str] = self._read(json.loads(token)[REPLACES])["add"]
            return names
        return [file.name for file in files_of(token)]


def file_name(number: int, name: str) -> str:
    """Name of a decision's manifest."""
    return f"{number:012}-{name}.json"


def _before(decision: Decision) -> tuple[int, str]:
    if decision.number <= 1 or not decision.earlier:
        return 0, ""
    return decision.number - 1, decision.earlier[0]


def _widened(batch: Any, schema: Any) -> Any:
    """A batch with the columns of a schema; those that it lacks are null."""
    import pyarrow as pa

    columns = [
        batch.column(f.name).cast(f.type) if f.name in batch.schema.names
        else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=schema)
