"""Lines of C libraries on standard error, as log lines of ours."""

import logging

import pytest

from coordinator.observe.native_stderr import LINES_MAX, PERIOD_S, Limited, structured

HEAD = "E0000 00:00:1763765654.066   12345 "


@pytest.mark.parametrize(
    ("line", "level", "event", "what"),
    [
        (
            HEAD + "add_port.cc:83] Failed to add port to server",
            logging.DEBUG, "grpc", "Failed to add port to server",
        ),
        ("W" + HEAD[1:] + "a/b.cc:1] slow", logging.WARNING, "grpc", "slow"),
        ("F" + HEAD[1:] + "b.cc:1] Check failed", logging.CRITICAL, "grpc", "Check failed"),
        (
            HEAD + "ssl_transport_security.cc:2563] Handshake failed with error SSL_ERROR_SSL: "
            "error:100000c0:SSL routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE",
            logging.WARNING, "tls_handshake_failed",
            "a client sent no certificate; this node requires one (tls_client_ca_file)",
        ),
        ("free(): invalid pointer", logging.WARNING, "stderr", "free(): invalid pointer"),
    ],
)  # fmt: skip
def test_a_line_of_the_core_becomes_one_of_ours(line, level, event, what):
    fields = structured(line)
    assert fields[:2] == (level, event)
    assert fields[2]["what"] == what


def test_of_a_flood_the_first_lines_and_a_number_are_logged():
    logged = []
    now_s = 100.0
    limited = Limited(lambda *what: logged.append(what), lambda: now_s)
    for number in range(1_000):
        limited(f"line {number}")
    assert len(logged) == LINES_MAX
    now_s += PERIOD_S
    limited("another")
    left_out, another = logged[LINES_MAX:]
    assert left_out == (logging.WARNING, "stderr_left_out", {"lines": 1_000 - LINES_MAX})
    assert another[2] == {"what": "another"}
    limited.flush()
    assert len(logged) == LINES_MAX + 2
