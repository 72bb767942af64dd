"""Generate the packages of `PACKAGES` and the table `LIMITS` from the contracts in this folder.

    python protos/generate.py           write the files
    python protos/generate.py --check   write nothing; exit 1 and name what differs

The result is a function of the `.proto` files and of the pinned versions of grpcio-tools and
mypy-protobuf: no time stamp, no path of the machine. The messages' code comes from protoc, the
stubs (`.pyi`) from mypy-protobuf, which knows about optional fields, enums and `grpc.aio`.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

PROTOS = Path(__file__).resolve().parent
ROOT = PROTOS.parent
PACKAGES = (
    Path("coordinator/v1"),
    Path("coordinator/durable/v1"),
    Path("coordinator/storage/etcd_api"),
)
LIMITS = Path("coordinator/core/limits.py")
"""The limits of `limits.proto`, for code that does not read the contract."""
LIMITS_HEAD = '''"""The limits of `coordinator/v1/limits.proto`. Never edit: run `poe protos`."""

from typing import NamedTuple


class Limit(NamedTuple):
    """Limit of a repeated field, in items of a whole message, or of a text, in characters.

    setting: that replaces the number. beyond: the answer beyond it, where the limit is checked
    elsewhere. See `Bound` in the contract.
    """

    items: int = 0
    characters: int = 0
    why: str = ""
    setting: str = ""
    beyond: str = ""

    def items_by(self, settings: object) -> int:
        """Items in force with these settings."""
        return int(getattr(settings, self.setting)) if self.setting else self.items

    def words(self, settings: object = None) -> str:
        """Description of the violation."""
        if not self.items:
            return f"must not be longer than {self.characters} characters"
        hint = f" ({self.setting})" if self.setting else ""
        return f"at most {self.items_by(settings)} may be listed in one call{hint}"


'''
INIT = '"""The generated contract. Never edit: run `poe protos`."""\n'


def generate(out: Path) -> None:
    """Write the generated packages below `out`.

    Raises:
        RuntimeError: there is nothing to generate from, or protoc refused.
    """
    sources: list[str] = []
    for package in PACKAGES:
        found = [path.relative_to(PROTOS).as_posix() for path in PROTOS.glob(f"{package}/*.proto")]
        if not found:
            raise RuntimeError(f"no .proto file in {PROTOS / package}")
        sources += sorted(found)
    # protoc looks for the plugins of mypy-protobuf on the PATH.
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ.get("PATH", "")
    # A process of its own: its protobuf and those of other packages do not bear each other.
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        f"-I{PROTOS}",
        f"-I{resources.files('grpc_tools') / '_proto'}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
        *sources,
    ]
    described = out / "described.binpb"
    command += ["--include_imports", f"--descriptor_set_out={described}"]
    done = subprocess.run(command, env={**os.environ, "PATH": path}, check=False)  # noqa: S603  # Ours.
    if done.returncode != 0:
        raise RuntimeError("protoc refused the contract; its words are above")
    (out / LIMITS).parent.mkdir(parents=True)
    (out / LIMITS).write_text(limits(described.read_bytes()), encoding="utf-8")
    for package in PACKAGES:
        (out / package / "__init__.py").write_text(INIT, encoding="utf-8")


def limits(described: bytes) -> str:
    """The source of the table of limits, from a serialized `FileDescriptorSet`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
        pool.Add(file)
    kind = pool.FindMessageTypeByName("google.protobuf.EnumValueOptions")
    # Any: types that are made here.
    bound: Any = pool.FindExtensionByName("coordinator.v1.bound")
    rows = []
    for value in pool.FindEnumTypeByName("coordinator.v1.Limit").values:
        data = value.GetOptions().SerializeToString()
        options: Any = message_factory.GetMessageClass(kind).FromString(data)
        told = [
            f"{field.name}={it:_}" if isinstance(it, int) else f'{field.name}="{it}"'
            for field, it in options.Extensions[bound].ListFields()
        ]
        if told:
            row = f"{value.name.removeprefix('LIMIT_')} = Limit({', '.join(told)})"
            inside = "".join(f"    {each},\n" for each in told)
            rows.append(row if len(row) <= 100 else f"{row.partition('(')[0]}(\n{inside})")
    return LIMITS_HEAD + "\n".join(rows) + "\n"


def package_files(root: Path) -> dict[str, bytes]:
    """The generated packages and table below `root`: path from there to content."""
    found = [path for package in PACKAGES for path in sorted((root / package).glob("*"))]
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in [*found, root / LIMITS]
        if path.is_file() and path.suffix in {".py", ".pyi"}
    }


def drift(root: Path = ROOT) -> list[str]:
    """Differences between the packages below `root` and fresh ones; empty if there are none."""
    with tempfile.TemporaryDirectory() as fresh:
        generate(Path(fresh))
        wanted = package_files(Path(fresh))
    found = package_files(root)
    return [
        f"{name}: {_difference(wanted.get(name), found.get(name))}"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]


def _difference(wanted: bytes | None, found: bytes | None) -> str:
    if found is None:
        return "is missing"
    return "is not generated from any .proto" if wanted is None else "differs from its .proto"


def write(root: Path = ROOT) -> None:
    """Bring the packages below `root` up to date, and remove what no `.proto` generates."""
    with tempfile.TemporaryDirectory() as fresh:
        generate(Path(fresh))
        wanted = package_files(Path(fresh))
    for name in package_files(root).keys() - wanted.keys():
        (root / name).unlink()
    for name, content in wanted.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description="Generate the code of the contracts.")
    parser.add_argument("--check", action="store_true", help="only say what differs")
    if not parser.parse_args().check:
        write()
        return 0
    differences = drift()
    for line in differences:
        print(line)
    print(
        "Run `poe protos` and commit the result."
        if differences
        else "The generated code is up to date."
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
