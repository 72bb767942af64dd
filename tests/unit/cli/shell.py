"""`coordinator groups` in this process, against a coordinator on virtual time: no sockets."""

from __future__ import annotations

import contextlib
import io
import json
import shlex

from coordinator.cli.main import main
from coordinator.client.transport.process_environment import ENVIRONMENT
from coordinator.v1 import cluster_pb2
from tests.kit.classic_scenario import ClassicScenario


class Shell(ClassicScenario):
    """A scenario, and an operator who runs commands in it."""

    is_terminal = False
    """True if standard output is a terminal."""

    def __init__(self, **settings) -> None:
        super().__init__(**settings)
        self.faults = lambda request: None
        """Returns what a request is answered with instead, or raises."""

    def groups(self, line: str) -> tuple[int, str, str]:
        """Run `coordinator groups`: the exit status, standard output and error."""
        return self.command(f"groups {line}")

    def command(self, line: str) -> tuple[int, str, str]:
        """Run a command: the exit status, standard output and error."""
        out, err = _Stdout(self.is_terminal), io.StringIO()
        with self._reached(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main([*shlex.split(line), "--bootstrap", "virtual:1"])
            except SystemExit as end:  # argparse refuses.
                status = end.code
        self._check()
        return status, out.getvalue(), err.getvalue()

    def rows(self, line: str, status: int = 0) -> list[dict]:
        """Rows that a command prints as JSON."""
        ended, out, err = self.groups(f"{line} -o json")
        assert ended == status, err
        return json.loads(out)

    def refused(self, line: str, status: int = 1) -> str:
        """The sentence with which a command is refused; it prints nothing else."""
        ended, out, err = self.groups(line)
        assert (ended, out) == (status, "")
        assert "Traceback" not in err
        return err

    @contextlib.contextmanager
    def _reached(self):
        token = ENVIRONMENT.set(_Surroundings(self))
        try:
            yield
        finally:
            ENVIRONMENT.reset(token)


class _Stdout(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_terminal


class _Surroundings:
    """Opens channels to the scenario's coordinator, whatever the address."""

    def __init__(self, shell: Shell) -> None:
        self._desk = shell

    def credentials(self, options):
        return self

    def open(self, address, options=None):
        return self

    def close(self) -> None:
        pass

    def unary_unary(self, path, **_):
        return self._cluster if path.endswith("/DescribeCluster") else self._answer

    unary_stream = stream_stream = unary_unary

    def _answer(self, request, timeout=None):
        return self._desk.faults(request) or self._desk.send(request).response

    def _cluster(self, request, timeout=None):
        node = cluster_pb2.DescribeClusterResponse.Node(node_id=0, host="virtual", port=1)
        return cluster_pb2.DescribeClusterResponse(nodes=[node])
