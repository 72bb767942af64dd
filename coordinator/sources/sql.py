"""A table of a SQL database, read by ranges of its key. Needs the extra `sql` (SQLAlchemy)."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from coordinator.sources.base import NothingFound
from coordinator.sources.readable import GroupReadable

ROWS_A_BATCH = 4_096


@dataclass(frozen=True)
class SqlTable(GroupReadable):
    """`Source` over rows with a whole-numbered key that rises: the key is the offset.

    Rows must become visible in the order of their keys. Where transactions that overlap take
    their keys from a sequence, let the key be one that is given when rows are published, or read
    a view that leaves the newest out. Keys that are missing are gaps.

    Args:
        url: SQLAlchemy's, such as postgresql://host/database.
        table: its name, or SCHEMA.TABLE. key: the column.
        partition_by: a column with the number of each row's partition, from 0 on.
        spread: without such a column, the number of partitions: each is a remainder of the key.
        name: the topic's name in the group; by default the table's.
    Raises:
        ValueError: `spread` is not positive.
    """

    url: str
    table: str
    key: str = "id"
    partition_by: str | None = None
    spread: int = 1
    name: str | None = None
    given_schema: Any = None

    def __post_init__(self) -> None:
        if self.spread < 1:
            raise ValueError(f"spread is {self.spread}")

    @property
    def topic(self) -> str:
        return self.name or self.table

    def partitions(self) -> list[int]:
        if self.partition_by is None:
            return list(range(self.spread))
        import sqlalchemy as sa

        highest = self._one(sa.select(sa.func.max(self._column("partition_by", self.partition_by))))
        return list(range(0 if highest is None else highest + 1))

    @property
    def expected(self) -> str:
        """Reason for having no partition, for messages: the table is empty and has no `spread`."""
        return f"the table {self.table} has no row to tell partitions by, as partition_by asks"

    def begin_offset(self, partition: int) -> int:
        """Always 0: missing keys are gaps, not deleted rows."""
        return 0

    def end_offset(self, partition: int) -> int:
        import sqlalchemy as sa

        newest = sa.select(sa.func.max(self._key)).where(self._is_in(partition))
        highest = self._one(newest)
        return 0 if highest is None else highest + 1

    def schema(self) -> Any:
        return _arrow_schema(self._table) if self.given_schema is None else self.given_schema

    def with_schema(self, schema: Any) -> SqlTable:
        """See `Source`. Columns are chosen by name."""
        return replace(self, given_schema=schema)

    def read(self, partition: int, begin: int, end: int) -> Iterator[Any]:
        import pyarrow as pa
        import sqlalchemy as sa

        schema = self.schema()
        columns = [_selected(self._table.c[name]) for name in schema.names]
        rows = sa.select(*columns).where(self._within(partition, begin, end)).order_by(self._key)
        with _engine(os.getpid(), self.url).connect() as connection:
            stream = connection.execution_options(stream_results=True).execute(rows)
            for some in stream.partitions(ROWS_A_BATCH):
                values = zip(*some, strict=True)
                arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
                yield pa.record_batch(arrays, schema=schema)

    def condition(self, partition: int, begin: int, end: int) -> str:
        """The condition for rows at these offsets, as SQL."""
        condition = self._within(partition, begin, end)
        return str(condition.compile(dialect=self._dialect, compile_kwargs={"literal_binds": True}))

    def quoted(self) -> str:
        """The table's name as SQL."""
        name: str = self._dialect.identifier_preparer.format_table(self._table)
        return name

    # --- Inside ---

    @property
    def _table(self) -> Any:
        import sqlalchemy as sa

        try:
            return _reflected(os.getpid(), self.url, self.table)
        except sa.exc.NoSuchTableError as error:
            url = sa.make_url(self.url).render_as_string(hide_password=True)
            raise NothingFound(
                f"there is no table {self.table} at {url}: create it, or correct table= in the "
                "source"
            ) from error

    @property
    def _key(self) -> Any:
        return self._column("key", self.key)

    def _column(self, setting: str, name: str) -> Any:
        table = self._table
        if name not in table.c:
            raise NothingFound(
                f"the table {self.table} has no column {name}, which {setting} names; it has "
                f"{', '.join(table.c.keys())}"
            )
        return table.c[name]

    @property
    def _dialect(self) -> Any:
        """The database's, without a driver's way to write parameters, which doubles `%`."""
        import sqlalchemy as sa

        kind: Any = sa.make_url(self.url).get_dialect()
        return kind(paramstyle="named")

    def _within(self, partition: int, begin: int, end: int) -> Any:
        import sqlalchemy as sa

        return sa.and_(self._is_in(partition), self._key >= begin, self._key < end)

    def _is_in(self, partition: int) -> Any:
        if self.partition_by is not None:
            return self._column("partition_by", self.partition_by) == partition
        return self._key % self.spread == partition

    def _one(self, query: Any) -> Any:
        with _engine(os.getpid(), self.url).connect() as connection:
            return connection.execute(query).scalar()


@functools.cache
def _engine(pid: int, url: str) -> Any:
    """One engine for each process: connections do not survive a fork."""
    import sqlalchemy as sa

    return sa.create_engine(url)


@functools.cache
def _reflected(pid: int, url: str, name: str) -> Any:
    import sqlalchemy as sa

    schema, _, table = name.rpartition(".")
    return sa.Table(table, sa.MetaData(), schema=schema or None, autoload_with=_engine(pid, url))


def _arrow_schema(table: Any) -> Any:
    import pyarrow as pa

    return pa.schema([(column.name, _arrow_type(column.type)) for column in table.columns])


def _arrow_type(kind: Any) -> Any:
    """Arrow type of a SQLAlchemy type; text if there is none."""
    import pyarrow as pa
    import sqlalchemy as sa

    if isinstance(kind, sa.Numeric) and not isinstance(kind, sa.Float):
        return pa.decimal128(kind.precision or 38, kind.scale or 0)
    for sql, arrow in (
        (sa.Boolean, pa.bool_()),
        (sa.Integer, pa.int64()),
        (sa.Float, pa.float64()),
        (sa.DateTime, pa.timestamp("us", "UTC" if getattr(kind, "timezone", False) else None)),
        (sa.Date, pa.date32()),
        (sa.Time, pa.time64("us")),
        (sa.LargeBinary, pa.binary()),
    ):
        if isinstance(kind, sql):
            return arrow
    return pa.string()


def _selected(column: Any) -> Any:
    """Column expression to select; cast to text if Arrow has no type for it."""
    import pyarrow as pa
    import sqlalchemy as sa

    is_text = isinstance(column.type, sa.String) or _arrow_type(column.type) != pa.string()
    return column if is_text else sa.cast(column, sa.Text).label(column.name)
