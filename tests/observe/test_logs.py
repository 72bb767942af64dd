"""Log lines, as people and machines read them."""

import json
import logging

import pytest
import structlog

from coordinator.observe.logs import configure

HARM = "a\x1b[2J\nroot# \u202e\x9b\0"


@pytest.fixture
def stderr(capsys):
    """Text written to standard error since the last call."""
    yield lambda: capsys.readouterr().err
    structlog.reset_defaults()
    logging.basicConfig(handlers=[], force=True)


def say(logger) -> None:
    logger.warning("access_refused", group=HARM, names=(HARM,))
    try:
        raise ValueError(HARM)
    except ValueError:
        logger.exception("trouble", what=HARM)
    logging.getLogger("library").error("it said %s", HARM)


def test_what_clients_send_does_nothing_to_a_terminal(stderr):
    say(configure("console", "info"))
    said = stderr()
    assert [char for char in said if not (char.isprintable() or char == "\n")] == []
    assert said.count("\\x1b[2J") >= 5
    assert said.count("\nroot#") <= 1  # A traceback is lines.


def test_lines_for_machines_have_it_as_it_was(stderr):
    say(configure("json", "info"))
    said = stderr()
    refused, trouble, library = map(json.loads, said.splitlines())
    assert refused["group"] == trouble["what"] == HARM
    assert library["event"] == f"it said {HARM}"
    assert "\x1b" not in said
