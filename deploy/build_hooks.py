"""Hooks of hatchling: the metadata that all wheels share, and wheels other than the plain one.

    COMPILE_TIMER=1 python -m build --wheel     with the timer compiled, for this machine
    ONLY_SERVER=1 python -m build --wheel       without the files of the wheels in deploy/wheels
    PROJECT_URL=https://… python -m build       with links into the public repository there

Compiled modules go through mypyc as they are; they and their sources both go into the wheel, where
Python prefers the compiled ones. Everything happens in a temporary folder, so that the checkout
stays what it is: pure Python. It takes a C compiler and Python's headers. Without the variables
nothing happens, and the wheel holds everything and fits every machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.requirements import Requirement  # hatchling brings it.

try:
    import tomllib
except ImportError:  # An older Python: hatchling brings tomli there, and pip checks the version.
    import tomli as tomllib

COMPILE, ONLY_SERVER, URL = "COMPILE_TIMER", "ONLY_SERVER", "PROJECT_URL"
ROOT = Path(__file__).parents[1]
MEMBER = "consumer-group-member"

MODULES = ("bucket", "operation", "purgatory", "task", "timer", "wheel")
"""Compiled modules of `timer`. `clock` and `aio` are not worth it: they wait for the system."""

SETUP = """
from mypyc.build import mypycify
from setuptools import setup

sources = {sources!r}
# Assertions stay on, as they do in Python. The name keeps the shared part inside the package.
extensions = mypycify(
    ["--strict", *sources], opt_level="3", debug_level="0", group_name="timer.compiled"
)
setup(name="timer", packages=["timer"], ext_modules=extensions)
"""


class Metadata(MetadataHookInterface):
    """Description and addresses, which depend on where the repository is public.

    A wheel of deploy/wheels also gets licence, classifiers, requirements and extras as the root
    states them. Its `requires` names wheels of ours, and packages whose bounds the root has; its
    `extras` names extras of the root.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the description, whose links lead to the repository, addresses and requirements.

        Raises:
            KeyError: `requires` or `extras` names nothing that the root has.
        """
        plain = project_of(ROOT)
        hook = plain["tool"]["hatch"]["metadata"]["hooks"]["custom"]
        url = (os.environ.get(URL) or hook["repository"]).rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, url),
        }
        metadata["urls"] = {name: f"{url}{path}" for name, path in ADDRESSES.items() if url}
        if "requires" in self.config:
            metadata |= shared_metadata(plain["project"], metadata, self.config)


def project_of(folder: Path) -> dict[str, Any]:
    """The content of a folder's pyproject.toml."""
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def shared_metadata(
    plain: dict[str, Any], own: dict[str, Any], wanted: dict[str, Any]
) -> dict[str, Any]:
    """The fields of a wheel's metadata that the root's state, with the same bounds.

    Args:
        plain: metadata of the root.
        own: metadata of the wheel: its name and version.
        wanted: names, in `requires` and `extras`.
    Raises:
        KeyError: the root has no such requirement, or no such extra.
    """
    extras = plain["optional-dependencies"]
    bounded = {Requirement(text).name: text for texts in extras.values() for text in texts}
    bounded |= {Requirement(text).name: text for text in plain["dependencies"]}
    ours = {project["project"]["name"] for project in parts()}
    fields = {name: plain[name] for name in ("license", "requires-python", "classifiers")}
    fields["dependencies"] = [
        f"{name}=={own['version']}" if name in ours else bounded[name]
        for name in wanted["requires"]
    ]
    if "extras" in wanted:
        fields["optional-dependencies"] = {
            extra: [text.replace(plain["name"], own["name"]) for text in extras[extra]]
            for extra in wanted["extras"]
        }
    return fields


ADDRESSES = {
    "Source": "",
    "Documentation": "/blob/HEAD/README.md#documentation",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Issues": "/issues",
}
"""Pages of a public repository, by the labels that package indexes know."""

_CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:`[^`]*`|[^\[\]`])*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def with_absolute_links(text: str, url: str) -> str:
    """Markdown whose links into the repository lead to `url`; without one, only their words stay.

    Blocks of code are left alone.
    """

    def linked(link: re.Match[str]) -> str:
        mark, words, path = link.groups()
        if not url:
            return words
        return f"{mark}[{words}]({url}/{'raw' if mark else 'blob'}/HEAD/{path})"

    parts = _CODE.split(text)  # Every other one is code.
    parts[::2] = [_LINK.sub(linked, prose) for prose in parts[::2]]
    return "".join(parts)


class Wheel(BuildHookInterface):
    """Adds the compiled modules to a wheel, or leaves the files of other wheels out."""

    _folder: Path | None = None

    def dependencies(self) -> list[str]:
        """Build requirements beyond hatchling."""
        return ["mypy[mypyc]>=1.18"] if COMPILE in os.environ else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name what came of it; leave out what another distribution holds.

        Raises:
            RuntimeError: the compiler failed; the message is what it said.
        """
        if version == "editable":
            return
        if ONLY_SERVER in os.environ:
            self.build_config.target_config["exclude"] += [f"/{path}" for path in files_of_parts()]
            build_data["dependencies"] += parts_of_the_server(self.metadata.version)
        if COMPILE not in os.environ:
            return
        self._folder = Path(tempfile.mkdtemp())
        built = compile_timer(Path(self.root), self._folder)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {
            str(path): path.relative_to(built).as_posix()
            for path in built.rglob("*.*")
            if path.is_file()
        }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Nothing of it stays behind."""
        if self._folder is not None:
            shutil.rmtree(self._folder)


def parts() -> list[dict[str, Any]]:
    """Projects of the wheels beside the server's, in the order of their names."""
    return [project_of(path.parent) for path in sorted(ROOT.glob("deploy/wheels/*/pyproject.toml"))]


def files_of(part: dict[str, Any]) -> list[str]:
    """Files and folders of the repository that a part's wheel holds."""
    return list(part["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].values())


def files_of_parts() -> list[str]:
    """Files and folders that the server's wheel leaves to others."""
    return [path for part in parts() for path in files_of(part)]


def parts_of_the_server(version: str) -> list[str]:
    """Our wheels that the server's requires: the member; for an extra, those that offer it too."""
    return [f"{MEMBER}=={version}"] + [
        f"{part['project']['name']}=={version}; extra == '{extra}'"
        for part in parts()
        for extra in part["tool"]["hatch"]["metadata"]["hooks"]["custom"].get("extras", ())
    ]


def compile_timer(root: Path, folder: Path) -> Path:
    """Compile the timer of the project at `root` in an empty folder.

    Returns:
        The folder that holds the package with its compiled modules, and nothing else.
    Raises:
        RuntimeError: the compiler failed; the message is what it said.
    """
    shutil.copytree(root / "timer", folder / "timer", ignore=shutil.ignore_patterns("__pycache__"))
    sources = [f"timer/{module}.py" for module in MODULES]
    (folder / "setup.py").write_text(SETUP.format(sources=sources))
    built = folder / "built"
    answer = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", built.name],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise RuntimeError(f"mypyc could not compile the timer:\n{answer.stdout}")
    return built
