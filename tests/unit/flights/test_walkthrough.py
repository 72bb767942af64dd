"""The walk-through shows code that is there."""

from pathlib import Path

from tests.kit.documents import blocks

FLIGHTS = Path(__file__).parents[3] / "deploy/spark/flights"


def lines(text):
    """Without indentation, comments and blank lines."""
    bare = (line.partition("  #")[0].strip() for line in text.splitlines())
    return "\n".join(line for line in bare if line)


def test_each_piece_of_code_is_in_a_file():
    files = [lines(path.read_text()) for path in FLIGHTS.rglob("*.py")]
    pieces = [block.text for block in blocks(FLIGHTS / "README.md", "python")]
    assert pieces
    for piece in pieces:
        assert any(lines(piece) in file for file in files), piece
