"""Label values of metrics, in snake_case."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)
def snake_case(words: str) -> str:
    """A name in words or in CamelCase, as a label value or a name of an event.

    `session expired` is session_expired, `leader re-joined` leader_rejoined, `PreparingRebalance`
    preparing_rebalance.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words.replace("-", ""))
    return re.sub(r"\W+", "_", words).lower()
