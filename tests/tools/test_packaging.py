"""Content of the wheel, and the few dependencies of the member library in it."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from coordinator.testing import CoordinatorServer
from tests.kit.linked_environment import NO_NETWORK, build_wheel

pytestmark = pytest.mark.integration

# All that the empty environment gets: the page on Kubernetes names them.
LIGHT_DEPENDENCIES = ["grpcio", "grpcio-status", "protobuf", "typing_extensions"]
# Programs that must work with these alone.
LIGHT_MODULES = ["coordinator.client", "coordinator.assignors", "coordinator.v1.group_pb2_grpc"]
# A member whose commits are more than its coordinator takes in a second.
HURRIED = """
import asyncio, sys
from coordinator.client import Granted, Member, TopicPartition
from coordinator.client.transport import wire

told, asked = [], wire.retry_after_of
wire.retry_after_of = lambda error: told.append(asked(error)) or told[-1]

async def main():
    async with Member(sys.argv[1], "g", {"t": 2}) as member:
        while not any(isinstance(event, Granted) for event in await member.poll(timeout=1.0)):
            pass
        one = TopicPartition("t", 0)
        await asyncio.gather(*(member.commit({one: offset}) for offset in range(40)))
    print(any(told))

asyncio.run(main())
"""
SERVER = ["core", "shard", "runtime", "storage", "service", "cluster", "observe", "cli"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def light_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, what members need, and nothing else."""
    home = tmp_path_factory.mktemp("light")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    answer = subprocess.run(
        [*pip, *LIGHT_DEPENDENCIES], capture_output=True, text=True, check=False, cwd=home
    )
    if answer.returncode != 0:
        if any(sign in answer.stderr for sign in NO_NETWORK):
            pytest.skip("no network: what members need cannot be fetched")
        pytest.fail(answer.stderr, pytrace=False)
    subprocess.run([*pip, "--no-deps", wheel], check=True, cwd=home)
    return python


def said_by(python: Path, code: str, *arguments: str) -> str:
    """Output of a program, away from the checkout."""
    command = [python, "-I", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=python.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(python: Path, statement: str) -> set[str]:
    """The modules that a statement loads in a fresh interpreter, away from the checkout."""
    code = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(' '.join(sorted(set(sys.modules) - before)))"
    )
    return set(said_by(python, code).split())


def test_wheel_has_types_code_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"coordinator/py.typed", "timer/py.typed"} <= set(names)
    assert "coordinator/v1/group_pb2.pyi" in names
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"coordinator", "timer"}
    assert [name for name in names if "bench" in name] == [], "benchmarks stay in tests/bench"
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_wheel_registers_the_command_and_no_pytest_plugin(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        entry_points = archive.read(name).decode()
    assert "coordinator = coordinator.cli.main:main" in entry_points
    assert "pytest11" not in entry_points


def test_importing_coordinator_imports_nothing(light_python: Path) -> None:
    assert imported_by(light_python, "import coordinator") == {"coordinator"}


def test_importing_timer_needs_the_standard_library_only(light_python: Path) -> None:
    top = {name.partition(".")[0] for name in imported_by(light_python, "import timer")}
    assert top <= {"timer", *sys.stdlib_module_names}


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_light_module_needs_grpcio_and_protobuf_only(light_python: Path, module: str) -> None:
    loaded = imported_by(light_python, f"import {module}")
    server = {
        name for name in loaded for part in SERVER if f"{name}.".startswith(f"coordinator.{part}.")
    }
    assert module in loaded
    assert server == set()


def test_a_member_heeds_what_a_coordinator_without_room_says(light_python: Path) -> None:
    """The delay is a message of google.rpc, which grpcio-status brings."""
    with CoordinatorServer(max_requests_per_second=5) as server:
        assert said_by(light_python, HURRIED, server.address) == "True\n"
