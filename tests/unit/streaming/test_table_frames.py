"""JDBC's URLs of databases that are named as SQLAlchemy names them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="readers need the extra `spark`")

from coordinator.spark.refusals import BadOption
from coordinator.spark.table_frames import DRIVERS, jdbc


@pytest.mark.parametrize(
    ("url", "expected", "kind"),
    [
        ("postgresql+psycopg://db/app", "jdbc:postgresql://db/app", "postgresql"),
        ("postgresql://[::1]:5433/app", "jdbc:postgresql://[::1]:5433/app", "postgresql"),
        (
            "mysql+pymysql://db:3306/app?useSSL=true",
            "jdbc:mysql://db:3306/app?useSSL=true",
            "mysql",
        ),
        ("mariadb://db", "jdbc:mariadb://db/", "mariadb"),
    ],
)
def test_a_database_is_told_to_spark_under_its_own_name(url, expected, kind):
    assert jdbc(url, None) == (expected, {"driver": DRIVERS[kind]})


def test_who_connects_is_told_beside_the_url():
    told = {"user": "ada", "password": "p@ss", "driver": DRIVERS["postgresql"]}
    assert jdbc("postgresql://ada:p%40ss@db/app", None) == ("jdbc:postgresql://db/app", told)


@pytest.mark.parametrize(
    "url", ["sqlite:////rows.db", "oracle://ada:secret@db/app", "mysql:///app"]
)
def test_a_url_that_is_not_known_is_asked_for(url):
    with pytest.raises(BadOption, match=r"give it as read_options .*url") as caught:
        jdbc(url, None)
    assert "secret" not in str(caught.value)
    assert jdbc(url, "jdbc:told:x")[0] == "jdbc:told:x"
    assert jdbc(url, "jdbc:mysql://db/")[1]["driver"] == DRIVERS["mysql"]
