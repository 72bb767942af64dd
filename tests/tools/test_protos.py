"""The generated package is what the contract generates, and the generator notices otherwise."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FILES = {"_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi"}

pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed (pip install '.[dev]')")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "protos/generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(generator: ModuleType, tmp_path: Path) -> Path:
    """A freshly generated package that a test may damage."""
    generator.write(tmp_path)
    return tmp_path


def test_committed_package_is_what_the_contract_generates(generator: ModuleType) -> None:
    assert generator.drift() == [], "run `poe protos` and commit the result"


def test_every_proto_has_code_and_stubs(generator: ModuleType, copy: Path) -> None:
    for package in generator.PACKAGES:
        names = {path.stem for path in (ROOT / "protos" / package).glob("*.proto")}
        wanted = {name + suffix for name in names for suffix in FILES} | {"__init__.py"}
        assert {path.name for path in (copy / package).iterdir() if path.is_file()} == wanted


def test_generation_is_deterministic(generator: ModuleType, copy: Path) -> None:
    assert generator.drift(copy) == []


def test_generated_code_names_no_path_of_the_machine(generator: ModuleType, copy: Path) -> None:
    for name, content in generator.package_files(copy).items():
        assert str(ROOT).encode() not in content, name
        assert str(copy).encode() not in content, name


def test_drift_names_changed_missing_and_stray_files(generator: ModuleType, copy: Path) -> None:
    folder = copy / generator.PACKAGES[0]
    with (folder / "group_pb2.py").open("a") as file:
        file.write("# Edited by hand.\n")
    (folder / "errors_pb2.pyi").unlink()
    (folder / "old_pb2.py").touch()
    assert generator.drift(copy) == [
        "coordinator/v1/errors_pb2.pyi: is missing",
        "coordinator/v1/group_pb2.py: differs from its .proto",
        "coordinator/v1/old_pb2.py: is not generated from any .proto",
    ]


def test_writing_removes_what_no_proto_generates(generator: ModuleType, copy: Path) -> None:
    stray = copy / generator.PACKAGES[0] / "old_pb2.py"
    stray.touch()
    generator.write(copy)
    assert not stray.exists()


def test_generated_modules_import_each_other_by_their_full_name() -> None:
    code = "from coordinator.v1 import admin_pb2_grpc, group_pb2_grpc, errors_pb2"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_buf_finds_nothing_to_say() -> None:
    buf = shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")
    if buf is None:
        pytest.skip("buf is not installed (pip install '.[dev]')")
    answer = subprocess.run(
        [buf, "lint", "protos"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
