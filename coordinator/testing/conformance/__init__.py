"""Conformance kit of the session protocol: is a server, or a client in any language, true to it?

    python -m coordinator.testing.conformance --server HOST:PORT [--restart COMMAND]
    python -m coordinator.testing.conformance --client COMMAND

The kit is the other side of the stream. Before a server it plays members, each case in a group of
its own, many at a time; cases of restarts come last, one at a time. Before a client it is the
coordinator, and the client says what it does. `deploy/docs/sessions.md` has the rules, and what a
client has to print.

Time is real, so cases are written to have one answer on a slow machine too: what must not happen
before a lease has ended is compared with the kit's own clock, on the side that favours the subject;
what must happen is awaited, with a guard. A case that the machine has disturbed is played again.
"""
