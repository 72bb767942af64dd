"""The session's setting for looking files up, while threads that share it read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="readers need the extra `spark`")

from coordinator.spark import file_frames


def session(threshold: str) -> SimpleNamespace:
    settings = {file_frames._THRESHOLD: threshold}
    return SimpleNamespace(
        settings=settings, conf=SimpleNamespace(get=settings.get, set=settings.__setitem__)
    )


def test_two_that_read_at_a_time_leave_the_setting_as_it_was():
    spark = session("32")
    first, second = (file_frames._looked_up_at_once(spark, "file:///log") for _ in range(2))
    first.__enter__()
    assert spark.settings[file_frames._THRESHOLD] == str(file_frames.LOOKED_UP)
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert spark.settings[file_frames._THRESHOLD] == "32"


@pytest.mark.parametrize(("root", "threshold"), [("s3a://b/log", "32"), ("file:///log", "99999")])
def test_stores_and_higher_settings_are_left_to_spark(root, threshold):
    spark = session(threshold)
    with file_frames._looked_up_at_once(spark, root):
        assert spark.settings[file_frames._THRESHOLD] == threshold
