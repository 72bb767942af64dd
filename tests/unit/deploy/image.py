"""The Dockerfile and the compose file, taken apart without a container engine."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from pathlib import Path

import dockerfile
import yaml

ROOT = Path(__file__).parents[3]
CONTAINER = ROOT / "deploy/container"


@dataclass
class Stage:
    """Instructions between one FROM and the next, in order."""

    base: str
    name: str
    commands: list[dockerfile.Command] = field(default_factory=list)

    def values(self, command: str) -> list[tuple[str, ...]]:
        """The arguments of every such command."""
        return [instruction.value for instruction in self.commands if instruction.cmd == command]

    @property
    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for pairs in self.values("ENV"):
            found |= dict(zip(pairs[::2], pairs[1::2], strict=True))
        return found

    @property
    def copied(self) -> list[tuple[list[str], str]]:
        """Sources from the context and where they go; not what comes from another stage."""
        return [
            (list(command.value[:-1]), command.value[-1])
            for command in self.commands
            if command.cmd == "COPY" and not command.flags
        ]


def stages() -> list[Stage]:
    """Stages of the image, of which the last is shipped; build arguments have their defaults."""
    arguments: dict[str, str] = {}
    found: list[Stage] = []
    for command in dockerfile.parse_file(str(CONTAINER / "Dockerfile")):
        if command.cmd == "ARG" and not found:
            name, _, value = command.value[0].partition("=")
            arguments[name] = value
        elif command.cmd == "FROM":
            base, *named = command.value
            for name, value in arguments.items():
                base = base.replace(f"${{{name}}}", value)
            found.append(Stage(base, named[-1] if named else ""))
        else:
            found[-1].commands.append(command)
    return found


def is_let_through(path: str) -> bool:
    """Whether the ignore file leaves a file of the checkout in the build's context."""
    let_through = True
    for line in (CONTAINER / "Dockerfile.dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if not pattern or line.startswith("#"):
            continue
        above = [path, *map(str, Path(path).parents)]
        anywhere = pattern.removeprefix("**/")
        names = [Path(instruction).name for instruction in above] if anywhere != pattern else above
        if any(fnmatch.fnmatchcase(name, anywhere) for name in names):
            let_through = line.startswith("!")
    return let_through


def _merged(below: dict, above: dict) -> dict:
    """Two mappings as compose merges them; no list of ours stands in both files."""
    return below | {
        key: _merged(below.get(key) or {}, value) if isinstance(value, dict) else value
        for key, value in above.items()
    }


def services(*overlays: str) -> dict[str, dict]:
    """Services of compose.yaml, with other files over it."""
    found: dict[str, dict] = {}
    for name in ("compose.yaml", *overlays):
        found = _merged(found, yaml.safe_load((CONTAINER / name).read_text())["services"])
    return found


def mounts(service: dict) -> dict[Path, str]:
    """Files and folders of the checkout that a service mounts, and their mount points."""
    found = {}
    for volume in service.get("volumes", ()):
        source, target, *_ = volume.split(":")
        if source.startswith("."):
            found[(CONTAINER / source).resolve()] = target
    return found
