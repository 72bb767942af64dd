"""Inputs worth keeping: those that once broke a decoder, and those that reach far into one.

A file for each decoder, an input a line, in hexadecimal; lines with `#` say what the next one did.
"""

from __future__ import annotations

from pathlib import Path


def read(name: str) -> list[bytes]:
    """The inputs kept for a decoder."""
    lines = (Path(__file__).parent / "corpus" / f"{name}.txt").read_text().splitlines()
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]
