"""Standard error of a process while C writes to it: nothing is lost, and nothing hangs."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

from tests.kit.patience import HANG_S
from tests.kit.serving import Process

SETUP = """
    import ctypes, faulthandler, logging, os, sys, threading
    from coordinator.observe.logs import configure
    from coordinator.observe.native_stderr import NativeStderr

    libc = ctypes.PyDLL(None)  # It keeps the interpreter's lock.

    def native(text):
        libc.write(2, text, len(text))
"""


def ran(body: str) -> tuple[int, list[dict], str]:
    """Exit status, log lines, and whatever else was written."""
    code = textwrap.dedent(SETUP) + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    lines = done.stderr.splitlines()
    ours = [json.loads(line) for line in lines if line.startswith("{")]
    return done.returncode, ours, "\n".join(line for line in lines if not line.startswith("{"))


CAUGHT = """
    with NativeStderr() as caught:
        logger = configure("json", "info")
        caught.log_to(lambda level, event, values: logger.log(level, event, **values))
"""


def test_what_c_writes_is_logged_to_the_end_and_python_goes_past_it():
    status, lines, rest = ran(
        CAUGHT
        + """
        native(b"from C\\nand ")
        logger.info("from_us")
        print("from Python", file=sys.stderr)
        logging.getLogger("x").error("from a library")
        native(b"more without an end")
    native(b"after it\\n")
    print("and so", file=sys.stderr)
    """
    )
    assert status == 0
    events = {line["event"] for line in lines}
    assert events == {"stderr", "from_us", "from a library"}
    assert [x["what"] for x in lines if x["event"] == "stderr"] == [
        "from C",
        "and more without an end",
    ]
    assert rest.splitlines() == ["from Python", "after it", "and so"]


def test_a_flood_neither_hangs_nor_fills_the_log():
    _, lines, rest = ran(
        CAUGHT
        + """
        for number in range(20_000):
            native(b"x" * 200 + b"\\n")
    """
    )
    assert 1 < len(lines) < 1_000
    assert lines[-1]["event"] == "stderr_left_out"
    assert rest == ""


def test_an_error_that_ends_python_is_seen():
    status, _, rest = ran(CAUGHT + "        raise ValueError('the reason')\n")
    assert status == 1
    assert "ValueError: the reason" in rest


def test_a_crash_shows_its_stacks():
    for end in ("faulthandler._sigabrt()", "faulthandler._sigsegv()", "os.abort()"):
        status, _, rest = ran(CAUGHT + f"        {end}\n")
        assert status < 0
        assert "Fatal Python error" in rest
        assert "<module>" in rest


def test_a_thread_that_nobody_waits_for_may_log_at_the_end():
    status, _, _ = ran(
        CAUGHT
        + """
        def talk():
            while True:
                print("talk", file=sys.stderr)
        threading.Thread(target=talk, daemon=True).start()
    """
    )
    assert status == 0


def test_a_port_that_is_taken_is_told_in_log_lines_alone():
    with Process() as first:
        second = Process("--listen", first.address, wait=False)
        assert second.wait() == 1
        assert second.other == ""
        assert {line["event"] for line in second.lines} == {"cannot_start"}
