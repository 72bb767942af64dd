"""How long a test waits for what has to come before it calls that a hang.

Such a time says nothing about how fast anything has to be. PATIENCE=3 in the environment makes all
of them three times as long, for a machine that is busy with other things.
"""

from __future__ import annotations

import os


def patience(seconds: float) -> float:
    return seconds * float(os.environ.get("PATIENCE", "1"))
