"""Contents and metadata of the wheels, and the few dependencies of the member library."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from readme_renderer import markdown

from coordinator import __version__
from tests.linked_environment import make_environment
from tests.serving import Process

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[1]
# Dependencies of the member library, and all that the empty environment gets.
LIGHT_DEPENDENCIES = ["grpcio", "protobuf", "typing_extensions"]
# Programs that must work with these alone.
LIGHT_MODULES = ["coordinator.client", "coordinator.assignors", "coordinator.v1.group_pb2_grpc"]
REPOSITORY = "https://example.org/coordinator"
# A worker as it is written in the README, to its first commit.
WORKER = """
import sys
from coordinator.client import BlockingMember, Granted, TopicPartition
with BlockingMember(sys.argv[1], "g", {"t": 2}) as member:
    while not any(isinstance(event, Granted) for event in member.poll(timeout=1.0)):
        pass
    member.commit({TopicPartition("t", 1): 7})
    print(sorted(member.assignment), member.committed())
from google.rpc import error_details_pb2  # How long to wait where there is no room.
from grpc_status import rpc_status
assert not [name for name in sys.modules if name.startswith(("coordinator.core", "rich", "apsw"))]
"""
# Modules of the member's wheel that need more: the package that provides it.
NEED_MORE = {"coordinator.operator.health": "grpc_health"}
SERVER = ["core", "shard", "runtime", "storage", "service", "cluster", "observe", "cli"]
NO_NETWORK = [
    "NewConnectionError",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "ConnectTimeoutError",
    "ProxyError",
    "from versions: none",  # The message if pip does not retry.
]


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return what it printed; fail the test, with its words, if it fails."""
    answer = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{answer.stdout}", pytrace=False)
    return answer.stdout


def build(folder: Path, out: Path, **environment: str) -> Path:
    """The wheel of the project in a folder."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, folder]
    run(*command, **environment)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def member_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT / "deploy" / "member", tmp_path_factory.mktemp("member"))


@pytest.fixture(scope="module")
def server_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that requires the member's, built for a public repository."""
    out = tmp_path_factory.mktemp("server")
    return build(ROOT, out, WITHOUT_MEMBER="1", PROJECT_URL=REPOSITORY)


@pytest.fixture(scope="module")
def light_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, grpcio, protobuf, and nothing else."""
    home = tmp_path_factory.mktemp("light")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    answer = subprocess.run(
        [*pip, *LIGHT_DEPENDENCIES], capture_output=True, text=True, check=False, cwd=home
    )
    if answer.returncode != 0:
        if any(sign in answer.stderr for sign in NO_NETWORK):
            pytest.skip("no network: grpcio and protobuf cannot be fetched")
        pytest.fail(answer.stderr, pytrace=False)
    run(*pip, "--no-deps", wheel, cwd=home)
    return python


def imported_by(python: Path, statement: str) -> set[str]:
    """The modules that a statement loads in a fresh interpreter, away from the checkout."""
    code = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(' '.join(sorted(set(sys.modules) - before)))"
    )
    return set(run(python, "-I", "-c", code, cwd=python.parent).split())


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


# --- Two distributions of one tree ---


def files(wheel: Path) -> set[str]:
    """The files of a wheel without its metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if not name.partition("/")[0].endswith(".dist-info")}


def metadata(wheel: Path) -> tuple[dict[str, list[str]], str]:
    """The fields of a wheel's metadata, and its description."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        message = HeaderParser().parsestr(archive.read(name).decode())
    fields = {key: message.get_all(key, []) for key in message}
    return fields, message.get_payload()


def test_no_file_is_in_both_wheels_and_none_is_lost(wheel, member_wheel, server_wheel):
    assert files(member_wheel) & files(server_wheel) == set()
    assert files(member_wheel) | files(server_wheel) == files(wheel)
    assert "coordinator/client/member/blocking.py" in files(member_wheel)
    assert "coordinator/cli/main.py" in files(server_wheel)


def test_the_server_requires_the_member_of_its_version_and_a_checkout_requires_none(
    wheel, member_wheel, server_wheel
):
    required = metadata(server_wheel)[0]["Requires-Dist"]
    assert f"consumer-group-member=={__version__}" in required
    plain = metadata(wheel)[0]["Requires-Dist"]
    assert set(required) - set(plain) == {f"consumer-group-member=={__version__}"}
    assert metadata(member_wheel)[0]["Version"] == [__version__]


def test_the_bounds_of_the_members_requirements_are_the_servers(wheel, member_wheel):
    ours = {text.partition(";")[0] for text in metadata(member_wheel)[0]["Requires-Dist"]}
    assert ours <= {text.partition(";")[0] for text in metadata(wheel)[0]["Requires-Dist"]}


@pytest.fixture(scope="module")
def member_python(member_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with consumer-group-member and what it requires."""
    python, missing = make_environment(tmp_path_factory.mktemp("only") / "home", member_wheel, "")
    assert missing == set()
    return python


def test_a_worker_needs_the_member_alone(member_python, tmp_path):
    with Process() as node:
        said = run(member_python, "-I", "-c", WORKER, node.address, cwd=tmp_path)
    assert said.startswith("[TopicPartition(topic='t', partition=0), TopicPartition(")
    assert "partition=1): 7" in said


def test_every_module_of_the_member_can_be_imported_there(member_python, member_wheel):
    """Extras are imported when they are used; the command line brings what its module needs."""
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in files(member_wheel)
        if name.endswith(".py")
    }
    statement = f"import {', '.join(sorted(modules - set(NEED_MORE)))}"
    run(member_python, "-I", "-c", statement, cwd=member_python.parent)
    for module, package in NEED_MORE.items():
        code = f"try: import {module}\nexcept ImportError as e: print(e.name)"
        assert run(member_python, "-I", "-c", code, cwd=member_python.parent) == f"{package}\n"


def test_both_wheels_together_are_the_coordinator(server_wheel, member_wheel, tmp_path):
    python, missing = make_environment(tmp_path / "home", server_wheel, "")
    assert missing == {f"consumer-group-member=={__version__}"}
    (packages,) = (tmp_path / "home").glob("lib/python*/site-packages")
    with zipfile.ZipFile(member_wheel) as archive:
        archive.extractall(packages)
    assert __version__ in run(python, "-I", "-m", "coordinator", "--version", cwd=tmp_path)
    run(python, "-I", "-c", "import coordinator.testing, coordinator.cli.serve", cwd=tmp_path)


# --- Metadata ---


def relative_links(description: str) -> list[str]:
    """Links of a page that lead nowhere on a package index, rendered as one renders it."""
    page = markdown.render(description)
    assert page is not None, "the index would show it as plain text"
    links = re.findall(r"""(?:href|src)=["']([^"']*)["']""", page)
    return [link for link in links if not re.match(r"https?://|#|mailto:", link)]


def test_the_description_leads_into_the_public_repository(server_wheel):
    fields, description = metadata(server_wheel)
    assert fields["Description-Content-Type"] == ["text/markdown"]
    assert relative_links(description) == []
    paths = re.findall(rf"\]\({REPOSITORY}/(?:blob|raw)/HEAD/([^)#]+)", description)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_addresses_of_the_project_are_in_the_public_repository(server_wheel):
    urls = dict(text.split(", ", 1) for text in metadata(server_wheel)[0]["Project-URL"])
    assert urls["Source"] == REPOSITORY
    assert {"Source", "Documentation", "Changelog", "Issues"} == set(urls)
    for url in urls.values():
        path = url.removeprefix(REPOSITORY).partition("#")[0]
        assert path in ("", "/issues") or (ROOT / path.removeprefix("/blob/HEAD/")).is_file()


def test_without_a_public_repository_nothing_leads_nowhere(wheel, member_wheel):
    for built in (wheel, member_wheel):
        fields, description = metadata(built)
        assert relative_links(description) == []
        assert "](" not in re.sub(r"\]\((https?:|#)", "", description)
        assert "Project-URL" not in fields


def test_documents_of_the_code_stay_in_the_repository(wheel, member_wheel):
    assert [name for name in files(wheel) | files(member_wheel) if name.endswith(".md")] == []
