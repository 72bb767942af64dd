"""Inputs worth keeping: those that once broke a decoder, and those that reach far into one.

A file for each target, an input a line, in hexadecimal; lines with `#` say what the next one did.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.txt"


def read(name: str) -> list[bytes]:
    """The inputs kept for a target."""
    path = path_of(name)
    lines = path.read_text().splitlines() if path.exists() else []
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]


def write_folder(inputs: Iterable[bytes], folder: Path) -> None:
    """The inputs as an engine wants them: a file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(inputs):
        (folder / f"{number:05}").write_bytes(data)
