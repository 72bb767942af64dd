"""Methods of event loops that a simulated one refuses, with the reason."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn


def _refusal(what: str) -> Any:
    def refuse(loop: NoOutsideWorld, *_args: object, **_options: object) -> NoReturn:
        raise loop.refusal(what)

    return refuse


class NoOutsideWorld(asyncio.AbstractEventLoop):
    """Refuses sockets, pipes, subprocesses and signals."""

    def refusal(self, what: str) -> NotImplementedError:
        """Return the error of a call that asks for something outside of this process."""
        return NotImplementedError(f"a loop on virtual time has no {what}")

    _no_sockets = _refusal("sockets: put a fake in the place of what is connected to")
    create_connection = create_server = create_datagram_endpoint = _no_sockets
    create_unix_connection = create_unix_server = start_tls = sendfile = _no_sockets
    connect_accepted_socket = getaddrinfo = getnameinfo = _no_sockets
    add_reader = remove_reader = add_writer = remove_writer = _no_sockets
    sock_recv = sock_recv_into = sock_recvfrom = sock_recvfrom_into = _no_sockets
    sock_sendall = sock_sendto = sock_connect = sock_accept = sock_sendfile = _no_sockets
    connect_read_pipe = connect_write_pipe = _refusal("pipes")
    subprocess_shell = subprocess_exec = _refusal("subprocesses")
    add_signal_handler = remove_signal_handler = _refusal("signals")
    set_task_factory = _refusal("tasks but its own")
