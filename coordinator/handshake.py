"""Diagnosis of failed TLS connections, by one handshake of our own.

gRPC reports `Socket closed` for all of them. With TLS 1.3 a client's handshake ends before the node
has checked its certificate, so a node that rejects it just closes the connection.
"""

from __future__ import annotations

import ssl
from socket import create_connection
from urllib.parse import urlsplit

from coordinator.dial import Credentials

TIMEOUT_S = 3.0
"""Limit for connecting, and for each response."""


def tls_failure(address: str, credentials: Credentials) -> str:
    """The TLS problem and its remedy as a sentence; empty if TLS does not seem to be the problem.

    Blocks for up to `TIMEOUT_S` per step.

    Args:
        address: HOST:PORT of a node.
    """
    host = urlsplit(f"//{address}").hostname or ""
    port = address.rpartition(":")[2]
    try:
        context = _context(credentials)
        with create_connection((host, int(port)), TIMEOUT_S) as plain:
            with context.wrap_socket(plain, server_hostname=host) as secured:
                if not credentials.is_tls:
                    return "the node requires TLS: give its authority with --tls-ca, or use --tls"
                if secured.recv(1):
                    return ""  # The HTTP/2 preface of the node.
        return _hung_up(credentials)
    except ssl.SSLCertVerificationError as error:
        return f"the node's certificate is not trusted (--tls-ca): {error.verify_message}"
    except (ssl.SSLEOFError, ConnectionError) as error:
        is_there = credentials.is_tls and not isinstance(error, ConnectionRefusedError)
        return _hung_up(credentials) if is_there else ""
    except ssl.SSLError as error:
        if not credentials.is_tls:
            return ""
        if error.reason == "WRONG_VERSION_NUMBER":
            return "the node does not use TLS: omit --tls and its files"
        return _hung_up(credentials) if "ALERT" in (error.reason or "") else ""
    except (OSError, ValueError):
        return ""


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=credentials.ca_file or None)
    context.set_alpn_protocols(["h2"])
    if not credentials.is_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # Only probes for TLS; no data is sent.
    elif credentials.cert_file:
        context.load_cert_chain(credentials.cert_file, credentials.key_file)
    return context


def _hung_up(credentials: Credentials) -> str:
    if credentials.cert_file:
        return "the node rejects this client certificate (--tls-cert)"
    more = " in addition to the token" if credentials.token or credentials.token_file else ""
    return f"the node requires a client certificate{more} (--tls-cert, --tls-key)"
