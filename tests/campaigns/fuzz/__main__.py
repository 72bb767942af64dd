"""Fuzz one decoder of `test_bytes.py`, guided by coverage, until it breaks or is stopped.

    python -m tests.campaigns.fuzz NAME [ARGUMENT OF LIBFUZZER ...]

It needs atheris (the extra `fuzz`).
"""

from __future__ import annotations

import sys

import atheris


def main() -> None:
    with atheris.instrument_imports(include=["coordinator"], enable_loader_override=False):
        from tests.campaigns.fuzz import test_bytes
    tests = {name.removeprefix("test_"): test for name, test in vars(test_bytes).items()
             if name.startswith("test_")}  # fmt: skip
    if len(sys.argv) < 2 or sys.argv[1] not in tests:
        sys.exit(f"{__doc__}\nNAME is one of {', '.join(tests)}")
    limits = ["-rss_limit_mb=2048", "-timeout=20"]
    fuzz_one_input = tests[sys.argv[1]].hypothesis.fuzz_one_input
    atheris.Setup([sys.argv[0], *limits, *sys.argv[2:]], fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
