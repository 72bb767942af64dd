"""Roll a release out and back under load: node after node of N becomes N + 1, and N again.

    python -m tests.faults.upgrade [COMMIT] [etcd|zookeeper|sqlite]

N + 1 is this tree, and N is a commit: by default the newest tag, or the parent of the last commit
where there is none. Both are built as wheels and unpacked. A classic group and a session group have
workers of both releases from the beginning to the end, so each speaks to nodes of the other one.

Claims: no partition is moved, since nobody leaves and no lease is long enough to end; so nothing is
worked on twice, and every commit is there in the end. Exit status: 0 if they hold.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from zipfile import ZipFile

from coordinator.operator.admin import GroupAdmin
from tests.faults.deployment import Deployment
from tests.faults.session_claims import Note, problems
from tests.faults.session_worker import CheckingSink, Program, notes_of
from tests.faults.single import SingleNode
from tests.integration.waiting import until
from tests.patience import HANG_S

ROOT = Path(__file__).parents[2]
PROTOCOLS = ("classic", "session")
PARTITIONS, COMMITS = 4, 2
"""Partitions of each group, and commits of each before the next node is restarted."""
LEASE_MS = 60_000
"""Far longer than a restart takes on a busy machine, so that no lease ends."""
NOT_COPIED = (".git", ".venv", "build", "dist", "site", "__pycache__", ".*_cache", "node_modules")


class NoHistory(Exception):
    """There is no commit to build a release of. The message says why."""


def last_release() -> str:
    """The commit that is N: the newest tag, or the parent of the last commit.

    Raises:
        NoHistory: this is no checkout with its history.
    """
    for command in (["describe", "--tags", "--abbrev=0"], ["rev-parse", "--verify", "HEAD~1"]):
        git = ["git", *command]
        found = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    raise NoHistory(f"no release before this one is at hand: {found.stderr.strip()}")


class Release:
    """A wheel, unpacked; and the environment of a process that runs it.

    Args:
        commit: it is built from; None: this tree as it is.
        version: its own, which tells it from the other one.
    """

    def __init__(self, folder: Path, commit: str | None, version: str) -> None:
        tree, wheels, self.folder = folder / "tree", folder / "wheels", folder / "unpacked"
        if commit is None:
            shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED))
        else:
            tree.mkdir(parents=True)
            git = ["git", "archive", "--format=tar", commit]
            archive = subprocess.run(git, cwd=ROOT, capture_output=True, check=True)
            subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
        about = tree / "coordinator" / "__init__.py"
        about.write_text(
            re.sub('__version__ = ".*"', f'__version__ = "{version}"', about.read_text())
        )
        build = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            wheels,
            tree,
        ]
        subprocess.run(build, capture_output=True, check=True)
        (self.wheel,) = wheels.glob("*.whl")
        with ZipFile(self.wheel) as archive:
            archive.extractall(self.folder)
        shutil.rmtree(tree)
        self.version = version

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that run this tree's tests with the release's product. Nothing is
        imported from the current folder."""
        return {"PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}

    def own_version(self) -> str:
        """The version that a process of this release says it is."""
        command = [sys.executable, "-c", "import coordinator; print(coordinator.__version__)"]
        return subprocess.run(
            command,
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()


class Groups:
    """A group of each protocol, with a worker of each release."""

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        self._folder = folder
        self._addresses = ",".join(addresses)
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, release: Release) -> None:
        """Start a worker of a release in each group."""
        for protocol in PROTOCOLS:
            folder = self._of(protocol)
            folder.mkdir(exist_ok=True)
            program = Program(
                self._addresses, protocol, str(folder), PARTITIONS, LEASE_MS, protocol
            )
            command = [sys.executable, "-m", "tests.faults.session_worker"]
            with (folder / f"{release.version}.log").open("w") as log:
                worker = subprocess.Popen(
                    [*command, json.dumps(asdict(program))],
                    stderr=log,
                    env={**os.environ, **release.variables},
                )
            self._workers.append(worker)

    def stop(self) -> None:
        """Kill the workers."""
        for worker in self._workers:
            worker.kill()
            worker.wait()

    async def share(self) -> None:
        """Wait until both workers of each group have partitions, and all are worked on."""
        await until(lambda: all(len(self._holders(each)) == 2 for each in PROTOCOLS), HANG_S)
        await self.commit()

    async def commit(self) -> None:
        """Wait until every partition was committed again by its holder."""
        known = {protocol: len(self._notes(protocol)) for protocol in PROTOCOLS}

        def have_committed() -> bool:
            assert all(worker.poll() is None for worker in self._workers), "a worker has ended"
            return all(
                sum(note["op"] == "committed" and note["p"] == p for note in new) >= COMMITS
                for protocol in PROTOCOLS
                for new in [self._notes(protocol)[known[protocol] :]]
                for p in range(PARTITIONS)
            )

        await until(have_committed, HANG_S)

    def grants(self) -> dict[str, int]:
        """Number of grants of partitions so far, by protocol."""
        return {
            protocol: sum(note["op"] == "granted" for note in self._notes(protocol))
            for protocol in PROTOCOLS
        }

    def problems(self, committed: Mapping[str, Mapping[int, int]]) -> list[str]:
        """Sentences about claims that do not hold.

        Args:
            committed: what the coordinator has in the end, by protocol and partition.
        """
        return [
            f"{protocol}: {found}"
            for protocol in PROTOCOLS
            for found in problems(
                self._notes(protocol),
                CheckingSink(str(self._of(protocol))).effects(),
                committed[protocol],
            )
        ]

    def _of(self, protocol: str) -> Path:
        return self._folder / protocol

    def _holders(self, protocol: str) -> set[int]:
        """Processes that hold a partition, by the last grant of each."""
        notes = self._notes(protocol)
        holders = {note["p"]: note["pid"] for note in notes if note["op"] == "granted"}
        return set(holders.values())

    def _notes(self, protocol: str) -> list[Note]:
        file = notes_of(self._of(protocol))
        lines = file.read_bytes() if file.exists() else b""
        return [json.loads(line) for line in lines[: lines.rfind(b"\n") + 1].splitlines()]


async def roll(folder: Path, store: str, before: Release, after: Release) -> list[str]:
    """Replace each node of `before` by one of `after`, and back.

    Returns:
        Sentences about what did not hold.
    """
    deployment = SingleNode() if store == "sqlite" else Deployment(store)
    deployment.variables = before.variables
    async with deployment:
        groups = Groups(folder, deployment.addresses)
        try:
            for release in (before, after):
                groups.start(release)
            await groups.share()
            granted = groups.grants()
            for release in (after, before):
                deployment.variables = release.variables
                for number in deployment.numbers:
                    await deployment.stop(number)
                    await deployment.start(number)
                    await groups.commit()
            moved = groups.grants()
        finally:
            groups.stop()
        with GroupAdmin(",".join(deployment.addresses)) as admin:
            committed = {
                protocol: {
                    key.partition: offset
                    for key, offset in (await asyncio.to_thread(admin.offsets, protocol)).items()
                }
                for protocol in PROTOCOLS
            }
    found = [
        f"{protocol}: {moved[protocol] - granted[protocol]} grants while nodes were replaced"
        for protocol in PROTOCOLS
        if moved[protocol] != granted[protocol]
    ]
    return [*found, *groups.problems(committed)]


def main() -> int:
    commit = sys.argv[1] if len(sys.argv) > 1 else last_release()
    store = sys.argv[2] if len(sys.argv) > 2 else "etcd"
    folder = Path(tempfile.mkdtemp(prefix="upgrade-"))
    before = Release(folder / "before", commit, "1.0.0")
    after = Release(folder / "after", None, "2.0.0")
    found = asyncio.run(roll(folder, store, before, after))
    print(*found, f"{commit} to this tree and back on {store}: {len(found)} problems", sep="\n")
    if found:
        print(f"see {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
