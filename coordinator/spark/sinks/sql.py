"""A table of a SQL database. Needs the extra `sql` and the database's driver.

Executors insert into a table of staged rows beside it, each task under an id of its own. One
transaction raises the number in the fence row, copies the rows of the tasks that count, and drops
them from the staged ones. The fence row is the lock: whoever comes second finds the number there.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any

from coordinator.spark.sinks.attempts import attempts
from coordinator.spark.sinks.protocol import Decision, SinkRefused
from coordinator.spark.sinks.staging import (
    StagedFile,
    arrow_schema,
    files_of,
    plain_schema,
    stage_tasks,
    to_token,
)

STAGED, FENCE, TASK = "__staged", "consumer_group_fence", "staged_by"
ROWS_AT_ONCE = 1_000
DAY_S = 86_400.0


class SqlSink:
    """A `Sink` into a SQL table, which is made if it is not there.

    Beside it are the table of staged rows, `TABLE__staged`, and `consumer_group_fence`, a row for
    each table and group. A table of your own may have columns of other types that take the rows'
    values, and more columns with defaults or nulls; a key or check that rows violate stops it.

    Args:
        url: SQLAlchemy's; drivers and executors connect to it.
        table: its name, in the schema that the connection has by default.
    """

    def __init__(self, url: str, table: str) -> None:
        self._url, self._name = url, table
        self._engine: Any = None

    @property
    def location(self) -> str:
        import sqlalchemy as sa

        return f"sql:{sa.make_url(self._url).render_as_string(hide_password=True)}#{self._name}"

    def stage(self, rows: Any, name: str) -> str:
        self._prepare(arrow_schema(rows))
        return to_token(stage_tasks(rows, partial(_insert, self._url, self._name)))

    def commit(self, token: str, decision: Decision) -> None:
        import sqlalchemy as sa

        # A commit without an answer may have been made: each attempt looks at the number again.
        errors = (sa.exc.OperationalError, sa.exc.IntegrityError)
        for attempt in attempts(*errors, failure=f"{self.location} cannot be written"):
            with attempt, self._opened().begin() as connection:
                if self._raised(connection, decision):
                    self._copy(connection, files_of(token), decision)
                return

    def recover(self, newest: Decision) -> int:
        import sqlalchemy as sa

        with self._opened().connect() as connection:
            if not sa.inspect(connection).has_table(FENCE):
                return 0
            fence = sa.Table(FENCE, sa.MetaData(), autoload_with=connection)
            number = connection.execute(
                sa.select(fence.c.number).where(
                    fence.c.sink == self._name, fence.c.consumer_group == newest.group
                )
            ).scalar()
            return int(number or 0)

    def discard(self, token: str) -> None:
        import sqlalchemy as sa

        with self._opened().begin() as connection:
            _, _, staged = self._tables(connection)
            tasks = [task.name for task in files_of(token)]
            connection.execute(sa.delete(staged).where(staged.c[TASK].in_(tasks)))

    def clean(self, *, older_than_s: float = DAY_S) -> int:
        """Delete staged rows that do not count, and return their number.

        Args:
            older_than_s: younger ones are left. Longer than a batch can take; `recover` first.
        """
        import sqlalchemy as sa

        with self._opened().begin() as connection:
            _, _, staged = self._tables(connection)
            until = _task_id(time.time() - older_than_s)
            dropped = connection.execute(sa.delete(staged).where(staged.c[TASK] < until))
            return int(dropped.rowcount)

    # --- Inside ---

    def _raised(self, connection: Any, decision: Decision) -> bool:
        """Raise the number of the fence row, and lock it; False if it is there already."""
        import sqlalchemy as sa

        fence, _, _ = self._tables(connection)
        key = {"sink": self._name, "consumer_group": decision.group}
        row = sa.and_(*(fence.c[name] == value for name, value in key.items()))
        raised = connection.execute(
            sa.update(fence)
            .where(row, fence.c.number < decision.number)
            .values(number=decision.number)
        )
        if raised.rowcount == 0:
            if connection.execute(sa.select(fence.c.number).where(row)).first() is not None:
                return False
            # Two at once: the primary key lets one of them in, and the other one looks again.
            connection.execute(sa.insert(fence).values(**key, number=decision.number))
        return True

    def _copy(self, connection: Any, tasks: list[StagedFile], decision: Decision) -> None:
        """Move the staged rows of tasks into the table."""
        import sqlalchemy as sa

        _, table, staged = self._tables(connection)
        columns = [
            column.name
            for column in table.columns
            if column.name in staged.c and column.name.lower() != TASK
        ]
        mine = staged.c[TASK].in_([task.name for task in tasks])
        chosen = sa.select(*(staged.c[name] for name in columns)).where(mine)
        copied = connection.execute(sa.insert(table).from_select(columns, chosen)).rowcount
        expected = sum(task.rows for task in tasks)
        if copied != expected:
            raise SinkRefused(
                f"{self.location}: {copied} staged rows are there, and {expected} count by "
                f"decision {decision.number} of group {decision.group}: put them back"
            )
        connection.execute(sa.delete(staged).where(mine))

    def _prepare(self, schema: Any) -> None:
        """Make the tables that are missing, and compare the columns."""
        import sqlalchemy as sa

        for name in schema.names:
            # Databases do not tell upper from lower case.
            if name.lower() == TASK:
                raise SinkRefused(
                    f"{self.location}: a column of the rows is called {name}, as is one of the "
                    f"table of staged rows: rename it before the sink"
                )
        self._create(
            FENCE,
            sa.Column("sink", sa.String(200), primary_key=True),
            sa.Column("consumer_group", sa.String(250), primary_key=True),
            sa.Column("number", sa.BigInteger, nullable=False),
        )
        self._create(self._name, *(sa.Column(f.name, _sql_type(f.type)) for f in schema))
        table = sa.Table(self._name, sa.MetaData(), autoload_with=self._opened())
        # Types and NOT NULL are the table's, so that rows which it would refuse are refused here.
        columns = [
            sa.Column(c.name, c.type, nullable=c.nullable)
            for c in table.columns
            if c.name in schema.names
        ]
        self._create(f"{self._name}{STAGED}", *columns, sa.Column(TASK, sa.String(48), index=True))
        with self._opened().connect() as connection:
            _, table, staged = self._tables(connection)
            for field in schema:
                for known in (table, staged):
                    if field.name not in known.c:
                        raise SinkRefused(
                            f"{self.location}: {known.name} has no column {field.name}: add it, or "
                            f"select its columns ({', '.join(known.c.keys())}) before the sink"
                        )

    def _create(self, name: str, *columns: Any) -> None:
        """Create a table if it is missing; another process may do so at the same moment."""
        import sqlalchemy as sa

        try:
            sa.Table(name, sa.MetaData(), *columns).create(self._opened(), checkfirst=True)
        except sa.exc.DBAPIError:
            if not sa.inspect(self._opened()).has_table(name):
                raise

    def _tables(self, connection: Any) -> tuple[Any, Any, Any]:
        import sqlalchemy as sa

        names = (FENCE, self._name, f"{self._name}{STAGED}")
        fence, table, staged = (
            sa.Table(name, sa.MetaData(), autoload_with=connection) for name in names
        )
        return fence, table, staged

    def _opened(self) -> Any:
        if self._engine is None:
            self._engine = engine(self._url)
        return self._engine

    def __getstate__(self) -> dict[str, Any]:  # Any: attributes.
        return {**self.__dict__, "_engine": None}


def engine(url: str) -> Any:
    """A SQLAlchemy engine; SQLite waits for other writers as long as servers do."""
    import sqlalchemy as sa

    settings = {"timeout": 60} if sa.make_url(url).get_backend_name() == "sqlite" else {}
    return sa.create_engine(url, connect_args=settings)


def _insert(url: str, name: str, batches: Iterable[Any]) -> list[StagedFile]:
    """Insert a task's rows under an id of its own, in one transaction."""
    import sqlalchemy as sa

    task, rows = _task_id(time.time()), 0
    opened = engine(url)
    try:
        with opened.begin() as connection:
            staged = sa.Table(f"{name}{STAGED}", sa.MetaData(), autoload_with=connection)
            for batch in batches:
                # Many databases drop time zones, and Spark's rows have the session's.
                plain = batch.cast(plain_schema(batch.schema))
                for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
                    some = plain.slice(begin, ROWS_AT_ONCE).to_pylist()
                    connection.execute(sa.insert(staged), [{**row, TASK: task} for row in some])
                rows += batch.num_rows
    finally:
        opened.dispose()
    return [StagedFile(task, 0, rows)] if rows else []


def _task_id(at_s: float) -> str:
    """A unique id that sorts by time."""
    return f"{int(at_s):012}-{uuid.uuid4().hex}"


def _sql_type(kind: Any) -> Any:
    """SQLAlchemy type of an Arrow type.

    Raises:
        SinkRefused: there is none.
    """
    import sqlalchemy as sa
    from pyarrow import types

    if types.is_decimal(kind):
        return sa.Numeric(kind.precision, kind.scale)
    if types.is_timestamp(kind):
        return sa.DateTime(timezone=kind.tz is not None)
    for test, sql in (
        (types.is_boolean, sa.Boolean()),
        (types.is_integer, sa.BigInteger()),
        (types.is_floating, sa.Double()),
        (types.is_string, sa.Text()),
        (types.is_binary, sa.LargeBinary()),
        (types.is_date, sa.Date()),
    ):
        if test(kind):
            return sql
    raise SinkRefused(f"a column of type {kind} has no place in a SQL table: cast it to text")
