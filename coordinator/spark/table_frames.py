"""Rows of a table as DataFrames of Spark's own reader of JDBC.

A partition's range of keys is a condition, and a task of Spark. The driver of the database is
Spark's to have, in `spark.jars`; Spark says what types its columns are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.sources.files import FileRange
from coordinator.sources.sql import ROWS_A_BATCH, SqlTable
from coordinator.spark.ranges import NO_BATCH, BatchRanges
from coordinator.spark.refusals import BadOption

DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
}
"""Databases whose JDBC URL is made of SQLAlchemy's, and the classes of their drivers, which Spark
does not find by itself in `spark.jars`."""
CHOOSING = frozenset(("dbtable", "query", "partitioncolumn", "lowerbound", "upperbound"))
"""Options that choose rows, or tasks: the group says which rows count."""


@dataclass(frozen=True)
class TableReader:
    """Spark's reader of one table. It can be pickled.

    Args:
        url: JDBC's. options: of Spark's reader, with the user and the password.
    """

    table: SqlTable
    url: str
    options: Mapping[str, str] = field(repr=False)

    @classmethod
    def of_table(
        cls, spark: Any, table: SqlTable, schema: Any, read_options: Mapping[str, str] | None
    ) -> TableReader:
        """The reader of a table.

        Args:
            schema: None. read_options: of Spark's reader; `url` and `driver` for databases other
                than `DRIVERS`.
        Raises:
            BadOption: an option chooses rows, or there is no driver of this database.
        """
        if schema is not None:
            raise BadOption("a table has its own schema: give types as read_options customSchema")
        options = {name.lower(): value for name, value in (read_options or {}).items()}
        for name in CHOOSING & options.keys():
            raise BadOption(f"{name} is not for this reader: the group says which rows count")
        url, reader_options = jdbc(table.url, options.pop("url", None))
        # Without it, PostgreSQL's driver takes all rows of a task into memory.
        reader = cls(table, url, {"fetchsize": str(ROWS_A_BATCH), **reader_options, **options})
        try:
            _ = reader.frame(spark, NO_BATCH, ()).schema
        except Exception as error:
            if "No suitable driver" in str(error) or "ClassNotFoundException" in str(error):
                raise BadOption(
                    f"Spark has no driver of {url.partition('://')[0]}: add its jar to spark.jars "
                    "when Spark is started (PostgreSQL's is in Debian's libpostgresql-jdbc-java)"
                ) from error
            raise
        return reader

    def frame(self, spark: Any, batch: BatchRanges, files: Sequence[FileRange]) -> Any:
        """See `RowsReader`."""
        wanted = [self.table.condition(p, r.begin, r.end) for p, r in batch.ranges.items()]
        return spark.read.jdbc(
            self.url, self.table.quoted(), predicates=wanted or ["1 = 0"], properties=self.options
        )


def jdbc(url: str, location: str | None) -> tuple[str, dict[str, str]]:
    """JDBC's URL of a database, and options that say who connects, by which driver.

    Raises:
        BadOption: it cannot be told by SQLAlchemy's.
    """
    import sqlalchemy as sa

    parsed = sa.make_url(url)
    kind = (
        parsed.get_backend_name()
        if location is None
        else location.removeprefix("jdbc:").partition(":")[0]
    )
    access = {"user": parsed.username, "password": parsed.password, "driver": DRIVERS.get(kind)}
    options = {name: str(value) for name, value in access.items() if value is not None}
    if location is not None:
        return location, options
    if kind not in DRIVERS or not parsed.host:
        shown = parsed.render_as_string(hide_password=True)
        raise BadOption(
            f"the JDBC URL of {shown} is not known: give it as read_options "
            '{"url": "jdbc:..."}, or read with format("consumer_group")'
        )
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    port = f":{parsed.port}" if parsed.port else ""
    query = "&".join(f"{name}={value}" for name, value in parsed.query.items())
    return f"jdbc:{kind}://{host}{port}/{parsed.database or ''}{query and '?' + query}", options
