"""Readiness notifications for systemd (`Type=notify`)."""

from __future__ import annotations

import os
import socket

VARIABLE = "NOTIFY_SOCKET"


def notify(*assignments: str) -> None:
    """Send assignments such as READY=1; a no-op unless NOTIFY_SOCKET is set.

    A notification that cannot be sent is dropped: the node serves without its supervisor, too.

    Source: sd_notify(3): one datagram of lines, to the path in NOTIFY_SOCKET; a leading @
    stands for the zero byte of an abstract name.
    """
    path = os.environ.get(VARIABLE, "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            sender.connect(address)
            sender.sendall("\n".join(assignments).encode())
        except OSError:
            return
