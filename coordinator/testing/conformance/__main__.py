"""Check a server or a client: see the package. Exit status: 0 if every rule was kept."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial

from coordinator.dial import Credentials
from coordinator.testing.conformance import client as client_cases
from coordinator.testing.conformance import server as server_cases
from coordinator.testing.conformance.cases import Case, Result, matching, play_all
from coordinator.testing.conformance.client.coordinator import ClientUnderTest
from coordinator.testing.conformance.server.group import GroupTrial, ServerUnderTest
from coordinator.testing.conformance.trial import Failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the cases that the command line asks for, and print a line for each."""
    options = _parser().parse_args(arguments)
    if options.list:
        for name, rule, title in _listed(options):
            print(f"{rule:4} {name}: {title}")
        return 0
    return asyncio.run(_play(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m coordinator.testing.conformance",
        description="Check a server, or a client in any language, against the session protocol.",
    )
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument("--server", metavar="HOST:PORT", help="a node; credentials are read from "
                         "the environment, as by other clients")  # fmt: skip
    subject.add_argument(
        "--client", metavar="COMMAND", help="a program that is one member; started for each case"
    )
    parser.add_argument(
        "cases", nargs="*", metavar="WORD", help="only cases with this word in their names"
    )
    parser.add_argument(
        "--restart",
        metavar="COMMAND",
        help="a command of the shell that restarts the server, and ends when that is done: "
        "plays the cases of restarts, too",
    )
    parser.add_argument("--list", action="store_true", help="print the cases; play none")
    parser.add_argument(
        "--lease-ms", type=int, default=2_000, metavar="MS", help="lease of the groups (2000)"
    )
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="cases at a time; 64 servers', 8 clients'"
    )
    parser.add_argument(
        "--guard-s", type=float, default=60.0, metavar="S", help="longest time of a case (60)"
    )
    parser.add_argument("--json", action="store_true", help="print results as lines of JSON")
    return parser


async def _results(options: argparse.Namespace) -> AsyncIterator[Result]:
    guard_s = options.guard_s
    if options.client:
        client = ClientUnderTest(options.client, options.lease_ms)
        cases, at_a_time = matching(client_cases.ALL, options.cases), options.jobs or 8
        async for result in play_all(cases, client.trial, at_a_time=at_a_time, guard_s=guard_s):
            yield result
        return
    server = ServerUnderTest(
        options.server,
        options.lease_ms,
        Credentials.from_environment(),
        partial(_run, options.restart or ""),
    )
    for part, at_a_time in ((server_cases.ALL, options.jobs or 64), (_restarts(options), 1)):
        some = matching(part, options.cases)
        async for result in play_all(some, server.trial, at_a_time=at_a_time, guard_s=guard_s):
            yield result


async def _run(command: str) -> None:
    """Run a command of the shell.

    Raises:
        Failed: it has failed.
    """
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.DEVNULL)
    if status := await process.wait():
        raise Failed(f"the command that restarts the coordinator ended with {status}")


def _restarts(options: argparse.Namespace) -> list[Case[GroupTrial]]:
    return server_cases.RESTARTS if options.restart else []


def _listed(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    if options.server:
        cases = matching([*server_cases.ALL, *_restarts(options)], options.cases)
        return [(case.name, case.rule, case.title) for case in cases]
    return [(c.name, c.rule, c.title) for c in matching(client_cases.ALL, options.cases)]


async def _play(options: argparse.Namespace) -> int:
    played = failed = 0
    async for result in _results(options):
        played += 1
        failed += result.problem is not None
        _tell(result, is_json=options.json)
    if not options.json:
        print(f"{played} cases, {failed} of them failed")
    return 1 if failed or not played else 0


def _tell(result: Result, *, is_json: bool) -> None:
    if is_json:
        said = {"name": result.name, "rule": result.rule, "title": result.title,
                "problem": result.problem, "transcript": result.transcript}  # fmt: skip
        print(json.dumps(said), flush=True)
        return
    if result.problem is None:
        print(f"ok    {result.rule:4} {result.name}  ({result.seconds:.1f} s)", flush=True)
        return
    print(f"FAIL  {result.rule:4} {result.name}: {result.title}")
    print(f"      {result.problem}")
    for line in result.transcript:
        print(f"      {line}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
