"""Label values of metrics, in snake_case."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)
def snake_case(text: str) -> str:
    """A name in words or in CamelCase, as a label value or a name of an event.

    `session expired` is session_expired, `leader re-joined` leader_rejoined, `PreparingRebalance`
    preparing_rebalance.
    """
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text.replace("-", ""))
    return re.sub(r"\W+", "_", text).lower()
