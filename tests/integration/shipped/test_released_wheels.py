"""The wheels of a release: what is in each, and that each does its job where it is installed."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from readme_renderer import markdown

from coordinator import __version__
from tests.linked_environment import make_environment
from tests.patience import HANG_S
from tests.serving import free_port
from tests.wheels import PARTS, ROOT, build, files, metadata, run

REPOSITORY = "https://example.org/coordinator"
NAMES = ["member", "spark", "conformance", "server"]
# A worker as it is written in the README, to its first commit.
WORKER = """
import sys
from coordinator.client import BlockingMember, Granted, TopicPartition
with BlockingMember(sys.argv[1], "g", {"t": 2}) as member:
    while not any(isinstance(event, Granted) for event in member.poll(timeout=1.0)):
        pass
    member.commit({TopicPartition("t", 1): 7})
    print(sorted(member.assignment), member.committed())
from coordinator.operator import Health
from google.rpc import error_details_pb2  # How long to wait where there is no room.
from grpc_status import rpc_status
assert not [name for name in sys.modules if name.startswith(("coordinator.core", "rich", "apsw"))]
"""
# A streaming query that joins a group, reads all rows of two partitions, and prints their sum.
QUERY = """
import sys
from pathlib import Path
import pyarrow
from pyspark.sql import SparkSession
from coordinator.sources.writing import write_log
from coordinator.spark.stream import ConsumerGroupSource
for partition in range(2):
    write_log(Path("log"), partition, pyarrow.table({"x": list(range(10))}))
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
spark.dataSource.register(ConsumerGroupSource)
options = {"coordinator": sys.argv[1], "group": "read", "source": "arrow:log", "topic": "t"}
rows = spark.readStream.format("consumer_group").options(**options).load()
query = rows.writeStream.format("memory").queryName("rows").trigger(availableNow=True).start()
query.awaitTermination()
print(spark.sql("SELECT sum(x) FROM rows").first()[0])
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The plain wheel and those of a release, of which the server's has a public repository."""

    def built(name: str) -> Path:
        out = tmp_path_factory.mktemp(name)
        if name == "server":
            return build(ROOT, out, ONLY_SERVER="1", PROJECT_URL=REPOSITORY)
        return build(ROOT if name == "plain" else PARTS / name, out)

    return {name: built(name) for name in ["plain", *NAMES]}


@pytest.fixture(scope="module")
def python_with(wheels, tmp_path_factory):
    """A function: the interpreter of an environment with a wheel, and what it requires alone."""

    def installed(name: str, extra: str = "") -> Path:
        home = tmp_path_factory.mktemp(name) / "home"
        python, missing = make_environment(
            home, wheels[name], extra, [wheels[each] for each in NAMES]
        )
        assert missing == set()
        return python

    return installed


@pytest.fixture(scope="module")
def server(python_with, tmp_path_factory) -> Iterator[str]:
    """The address of a node that the server's wheel serves, with pages and a store."""
    command = python_with("server").parent / "coordinator"
    folder = tmp_path_factory.mktemp("served")
    address, console = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    flags = ["--listen", address, "--console-listen", console, "--metrics-listen", ""]
    node = subprocess.Popen(
        [command, "serve", *flags, "--group-initial-rebalance-delay-ms", "50"],
        cwd=folder,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(60):  # Each attempt starts a process: they are the pause.
            health = [command, "health", "--bootstrap", address, "--timeout", "0.5"]
            done = subprocess.run(health, cwd=folder, capture_output=True, check=False)
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stdout
        yield address
        node.terminate()
        assert node.wait(timeout=HANG_S) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            node.kill()
        node.wait()


# --- Content ---


def test_no_file_is_in_two_wheels_and_none_is_lost(wheels):
    held = [files(wheels[name]) for name in NAMES]
    assert sum(map(len, held)) == len(set().union(*held))
    assert set().union(*held) == files(wheels["plain"])
    for name, file in {
        "member": "coordinator/client/member/blocking.py",
        "spark": "coordinator/sources/sql.py",
        "conformance": "coordinator/testing/conformance/subject.py",
        "server": "coordinator/testing/group.py",
    }.items():
        assert file in files(wheels[name])


def test_wheels_require_each_other_in_their_own_version_and_a_checkout_requires_none(wheels):
    def ours(name: str) -> set[str]:
        required = metadata(wheels[name])[0]["Requires-Dist"]
        return {text for text in required if text.startswith("consumer-group-")}

    member = f"consumer-group-member=={__version__}"
    assert ours("plain") == ours("member") == set()
    assert ours("spark") == ours("conformance") == {member}
    rows = {text.partition("; ")[2]: text.partition(";")[0] for text in ours("server")}
    assert rows.pop("") == member
    assert "extra == 'spark'" in rows
    assert set(rows.values()) == {f"consumer-group-spark=={__version__}"}


def test_each_wheel_has_the_version_the_licence_and_the_bounds_of_the_project(wheels):
    plain = metadata(wheels["plain"])[0]
    shared = ["Version", "Classifier", "License-Expression", "License-File", "Requires-Python"]
    bounds = {text.partition(";")[0] for text in plain["Requires-Dist"]}
    for name in NAMES:
        fields = metadata(wheels[name])[0]
        assert [fields[field] for field in shared] == [plain[field] for field in shared]
        required = {text.partition(";")[0] for text in fields["Requires-Dist"]}
        assert {text for text in required if not text.startswith("consumer-group")} <= bounds


def test_documents_of_the_code_stay_in_the_repository(wheels):
    for wheel in wheels.values():
        assert [name for name in files(wheel) if name.endswith(".md")] == []


# --- Jobs ---


@pytest.mark.parametrize("name", ["member", "conformance"])
def test_every_module_can_be_imported_where_a_wheel_is_alone(python_with, wheels, name):
    """The two without extras."""
    modules = {
        file.removesuffix(".py").removesuffix("/__init__").removesuffix("/__main__")
        for file in files(wheels[name])
        if file.endswith(".py")
    }
    statement = f"import {', '.join(sorted(module.replace('/', '.') for module in modules))}"
    python = python_with(name)
    run(python, "-I", "-c", statement, cwd=python.parent)


def test_a_worker_needs_the_member_alone(python_with, server, tmp_path):
    said = run(python_with("member"), "-I", "-c", WORKER, server, cwd=tmp_path)
    assert said.startswith("[TopicPartition(topic='t', partition=0), TopicPartition(")
    assert "partition=1): 7" in said


def test_the_conformance_kit_needs_no_server_of_ours(python_with, server, tmp_path):
    kit = [python_with("conformance"), "-I", "-m", "coordinator.testing.conformance"]
    said = run(*kit, "--server", server, "attach", cwd=tmp_path)
    assert re.search(r"^[1-9]\d* cases, 0 of them failed$", said, re.MULTILINE)


def test_the_testing_kit_without_a_server_says_what_it_needs(python_with, tmp_path):
    code = "try: from coordinator.testing import VirtualGroup\nexcept ImportError as e: print(e)"
    said = run(python_with("member"), "-I", "-c", code, cwd=tmp_path)
    assert said == "coordinator.testing.VirtualGroup needs consumer-group-coordinator\n"


def test_the_server_brings_the_testing_kit(python_with, tmp_path):
    code = """if True:
        from coordinator.testing import VirtualGroup
        import coordinator.testing.virtual
        print(VirtualGroup.__name__)
    """
    assert run(python_with("server"), "-I", "-c", code, cwd=tmp_path) == "VirtualGroup\n"


@pytest.mark.spark
def test_spark_reads(python_with, server, tmp_path):
    python = python_with("spark", "spark")
    said = run(python, "-I", "-c", QUERY, server, cwd=tmp_path, PYSPARK_PYTHON=str(python))
    assert said.splitlines()[-1] == "90"


# --- Descriptions ---


def relative_links(description: str) -> list[str]:
    """Links of a page that lead nowhere on a package index, rendered as one renders it."""
    page = markdown.render(description)
    assert page is not None, "the index would show it as plain text"
    links = re.findall(r"""(?:href|src)=["']([^"']*)["']""", page)
    return [link for link in links if not re.match(r"https?://|#|mailto:", link)]


def test_the_description_leads_into_the_public_repository(wheels):
    fields, description = metadata(wheels["server"])
    assert fields["Description-Content-Type"] == ["text/markdown"]
    assert relative_links(description) == []
    paths = re.findall(rf"\]\({REPOSITORY}/(?:blob|raw)/HEAD/([^)#]+)", description)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_addresses_of_the_project_are_in_the_public_repository(wheels):
    urls = dict(text.split(", ", 1) for text in metadata(wheels["server"])[0]["Project-URL"])
    assert urls["Source"] == REPOSITORY
    assert {"Source", "Documentation", "Changelog", "Issues"} == set(urls)
    for url in urls.values():
        path = url.removeprefix(REPOSITORY).partition("#")[0]
        assert path in ("", "/issues") or (ROOT / path.removeprefix("/blob/HEAD/")).is_file()


@pytest.mark.parametrize("name", ["plain", "member", "spark", "conformance"])
def test_without_a_public_repository_nothing_leads_nowhere(wheels, name):
    fields, description = metadata(wheels[name])
    assert relative_links(description) == []
    assert "](" not in re.sub(r"\]\((https?:|#)", "", description)
    assert "Project-URL" not in fields
