"""A line of the log is short, whatever a caller puts into a request."""

from __future__ import annotations

from coordinator.observe.logs import SENTENCE_MAX, TRACEBACK_MAX, VALUE_MAX, shorten


def test_long_values_are_cut_and_say_how_long_they_were():
    line = shorten(None, "info", {"event": "e", "group": "g" * 1_000_000, "n": 5, "ok": "x"})
    assert line["n"] == 5
    assert line["ok"] == "x"
    assert line["group"].startswith("g" * VALUE_MAX)
    assert "1000000 characters" in line["group"]
    assert len(line["group"]) < VALUE_MAX + 40


def test_collections_and_tracebacks_are_cut_too():
    line = shorten(None, "info", {"names": ("x" * 500,), "few": ["a"], "exception": "t" * 10**6})
    assert len(line["names"]) < VALUE_MAX + 40
    assert line["few"] == ["a"]
    assert len(line["exception"]) == TRACEBACK_MAX


def test_a_sentence_with_a_long_path_is_whole():
    sentence = f"/{'folder/' * 100}data has all shards: start it without --share"
    assert shorten(None, "error", {"what": sentence})["what"] == sentence
    assert len(shorten(None, "error", {"what": "w" * 10**6})["what"]) < SENTENCE_MAX + 40
