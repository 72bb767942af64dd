"""A line of the log is short, whatever a caller puts into a request."""

from __future__ import annotations

import json

from coordinator.observe.logs import ITEMS_MAX, SENTENCE_MAX, TRACEBACK_MAX, VALUE_MAX, plain


def test_long_values_are_cut_and_say_how_long_they_were():
    line = plain(None, "info", {"event": "e", "group": "g" * 1_000_000, "n": 5, "ok": "x"})
    assert line["n"] == 5
    assert line["ok"] == "x"
    assert line["group"].startswith("g" * VALUE_MAX)
    assert "1000000 characters" in line["group"]
    assert len(line["group"]) < VALUE_MAX + 40


def test_collections_and_tracebacks_are_cut_too():
    names = ["x" * 500] * 10_000
    line = plain(None, "info", {"names": names, "few": ["a"], "exception": "t" * 10**6})
    assert len(line["names"]) == ITEMS_MAX + 1
    assert len(json.dumps(line["names"])) < (ITEMS_MAX + 1) * (VALUE_MAX + 40)
    assert line["names"][-1] == f"… ({10_000 - ITEMS_MAX} more)"
    pairs = plain(None, "info", {"names": {name: name for name in range(1_000)}})["names"]
    assert list(pairs) == [str(number) for number in range(ITEMS_MAX)]
    assert line["few"] == ["a"]
    assert len(line["exception"]) == TRACEBACK_MAX


def test_a_sentence_with_a_long_path_is_whole():
    sentence = f"/{'folder/' * 100}data has all shards: start it without --share"
    assert plain(None, "error", {"what": sentence})["what"] == sentence
    assert len(plain(None, "error", {"what": "w" * 10**6})["what"]) < SENTENCE_MAX + 40
