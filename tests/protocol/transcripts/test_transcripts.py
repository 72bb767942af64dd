"""Each story is told again and must come out as it was written.

`pytest tests/protocol/transcripts --rewrite` writes what is said now; the review reads the
difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocol.transcripts.story import Transcript

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path, request):
    told = Transcript().run(path.read_text())
    if request.config.getoption("--rewrite"):
        path.write_text(told)
    assert told == path.read_text()


def test_there_are_stories():
    assert len(STORIES) >= 5
