"""Tells systemd how far a service has come, if systemd started it and asks to be told."""

from __future__ import annotations

import os
import socket

VARIABLE = "NOTIFY_SOCKET"


def notify(*assignments: str) -> None:
    """Send assignments such as READY=1; nothing happens where nobody asked for them.

    A supervisor that has gone is no reason to stop serving: what cannot be sent is dropped.

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
