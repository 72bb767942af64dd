"""The Dockerfile's steps, run without a container engine, and checks of compose's mounts."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.kit.linked_environment import NO_NETWORK
from tests.kit.patience import HANG_S
from tests.kit.serving import free_port
from tests.unit.deploy.image import ROOT, Stage, is_let_through, mounts, services, stages
from tests.unit.deploy.test_supply import LOCKED

FOLDERS = ("/src", "/builder", "/app", "/wheels")
"""Absolute folders of the build, which are inside a folder of the test here."""


def moved(line: str, home: Path) -> str:
    """A shell line with the image's folders in another place."""
    return re.sub(rf"(?<!\S)({'|'.join(FOLDERS)})\b", rf"{home}\1", line)


def copy(sources: list[str], target: Path) -> None:
    """Copy like COPY: a folder's content, without what the ignore file excludes."""
    for source in sources:
        for path in ROOT.glob(source):
            for file in [path] if path.is_file() else path.rglob("*"):
                inside = Path(path.name) if path.is_file() else file.relative_to(path)
                if file.is_file() and is_let_through(file.relative_to(ROOT).as_posix()):
                    (target / inside).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, target / inside)


def carry_out(stage: Stage, home: Path, **arguments: str) -> None:
    """Run a stage's commands with the interpreter of these tests, and with build arguments."""
    here = home / stage.values("WORKDIR")[0][0].lstrip("/")
    here.mkdir(parents=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in stage.commands:
        if command.cmd == "COPY":
            copy(list(command.value[:-1]), here / command.value[-1])
        elif command.cmd == "RUN":
            done = subprocess.run(
                ["sh", "-c", moved(command.value[0], home)],
                cwd=here,
                env={**os.environ, "PATH": path, "PYTHONPATH": "", **arguments},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0 and any(sign in done.stderr for sign in NO_NETWORK):
                pytest.skip("no network: what the lock files name cannot be fetched")
            assert done.returncode == 0, done.stderr[-3_000:]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder that the image takes over from its first stage."""
    home = tmp_path_factory.mktemp("image")
    carry_out(stages()[0], home)
    return home / "app"


def test_the_build_leaves_what_the_locks_name_and_no_installer(installed):
    (packages,) = installed.glob("lib/python*/site-packages")
    names = {path.name.partition("-")[0] for path in packages.glob("*.dist-info")}
    assert {"consumer_group_coordinator", "grpcio", "apsw", "uvloop", "kazoo"} <= names
    assert not {"pip", "hatchling", "pytest", "psycopg"} & names


def test_with_its_build_argument_the_image_reaches_postgresql(postgres, tmp_path):
    carry_out(stages()[0], tmp_path, **services("postgres.yaml")["coordinator"]["build"]["args"])
    entry = tmp_path / "app/bin" / stages()[-1].values("ENTRYPOINT")[0][0]
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    store = {"COORDINATOR_STORE": postgres.url(), "COORDINATOR_LISTEN": "127.0.0.1:7400"}
    check = [entry, "config", "check"]
    done = subprocess.run(
        check, env=plain | store, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no standby is connected" in done.stdout  # It has asked the server.


@pytest.mark.skipif(
    importlib.util.find_spec("cyclonedx_py") is None,
    reason="cyclonedx-bom is not installed (pip install '.[dev]')",
)
def test_the_bill_of_materials_names_every_part(installed, tmp_path):
    bill = tmp_path / "sbom.cdx.json"
    command = [sys.executable, "-m", "cyclonedx_py", "environment", installed / "bin/python"]
    options = ["--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "-o", bill]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    components = json.loads(bill.read_text())["components"]
    parts = {canonicalize_name(component["name"]): component for component in components}
    here = [wheel for wheel in LOCKED if wheel.marker is None or wheel.marker.evaluate()]
    found = {wheel.name: parts[canonicalize_name(wheel.name)] for wheel in here}
    assert {name: f"=={part['version']}" for name, part in found.items()} == {
        wheel.name: str(wheel.specifier) for wheel in here
    }
    # protobuf states its licence in words of its own; test_supply.py knows them.
    assert {name for name, part in found.items() if not part.get("licenses")} <= {"protobuf"}


def test_what_was_built_serves_is_healthy_and_stops_at_once(installed, tmp_path):
    image = stages()[-1]
    address = f"127.0.0.1:{free_port()}"
    ours = {k: v for k, v in image.environment.items() if k.startswith("COORDINATOR_")}
    ours |= {
        "COORDINATOR_LISTEN": address,
        "COORDINATOR_METRICS_LISTEN": "",  # On the loopback plain text will do.
        "COORDINATOR_CONSOLE_LISTEN": f"127.0.0.1:{free_port()}",
        "COORDINATOR_DATA_DIR": str(tmp_path / "data"),
    }
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    entry = installed / "bin" / image.values("ENTRYPOINT")[0][0]
    health = [entry, "health", "--bootstrap", address, "--timeout", "0.5"]
    node = subprocess.Popen(
        [entry, *image.values("CMD")[-1]], env=plain | ours, cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(60):  # Each attempt starts a process: they are the pause.
            done = subprocess.run(health, env=plain, cwd=tmp_path, capture_output=True, check=False)
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stdout
        node.send_signal(getattr(signal, image.values("STOPSIGNAL")[0][0]))
        assert node.wait(timeout=HANG_S) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            node.kill()
        node.wait()


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="no promtool found (on Debian: apt-get install prometheus)",
)
def test_prometheus_accepts_its_configuration_with_the_rules_where_compose_mounts_them(tmp_path):
    for source, target in mounts(services()["prometheus"]).items():
        place = tmp_path / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, place)
    (flag,) = [
        service
        for service in services()["prometheus"]["command"]
        if service.startswith("--config.file=")
    ]
    config = tmp_path / flag.partition("=")[2].lstrip("/")
    done = subprocess.run(
        ["promtool", "check", "config", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 rule files found" in done.stdout
