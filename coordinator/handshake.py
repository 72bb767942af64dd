"""Why TLS keeps a client from a node: found out by one handshake of our own.

gRPC says `Socket closed` for all of it. With TLS 1.3 a client's handshake is over before the node
has looked at its certificate, so a node that wants one, or another one, just hangs up.
"""

from __future__ import annotations

import ssl
from socket import create_connection
from urllib.parse import urlsplit

from coordinator.dial import Credentials

TIMEOUT_S = 3.0
"""For the connection, and for each answer."""


def tls_trouble(address: str, credentials: Credentials) -> str:
    """What is wrong, and what would help; empty: TLS is not what is wrong, as far as can be told.

    Args:
        address: HOST:PORT of a node. It may take some seconds.
    """
    host = urlsplit(f"//{address}").hostname or ""
    port = address.rpartition(":")[2]
    try:
        context = _context(credentials)
        with create_connection((host, int(port)), TIMEOUT_S) as plain:
            with context.wrap_socket(plain, server_hostname=host) as secured:
                if not credentials.is_tls:
                    return "the node speaks TLS: say whom to trust (--tls-ca, or --tls)"
                if secured.recv(1):
                    return ""  # The node's first words in HTTP/2.
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
            return "the node does not speak TLS: leave --tls and the files for it out"
        return _hung_up(credentials) if "ALERT" in (error.reason or "") else ""
    except (OSError, ValueError):
        return ""


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=credentials.ca_file or None)
    context.set_alpn_protocols(["h2"])
    if not credentials.is_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # Nothing is sent: only whether it is TLS counts.
    elif credentials.cert_file:
        context.load_cert_chain(credentials.cert_file, credentials.key_file)
    return context


def _hung_up(credentials: Credentials) -> str:
    if credentials.cert_file:
        return "the node does not take this client certificate (--tls-cert)"
    more = ", beside the token" if credentials.token or credentials.token_file else ""
    return f"the node asks for a client certificate{more} (--tls-cert, --tls-key)"
