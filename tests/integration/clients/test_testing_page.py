"""The page on testing: its blocks are a test suite that passes, with and without other plugins."""

import os
import subprocess
import sys

import pytest

from tests.kit.documents import ROOT, blocks

PAGE = ROOT / "deploy/docs/how-to/testing.md"


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    for block in blocks(PAGE, "python"):
        assert block.name, f"a block without a file's name: {block.text}"
        (folder / block.name).write_text(block.text)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return folder


def pytest_in(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "plugins",
    [
        ("-p", "no:asyncio", "-p", "no:anyio"),
        ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"),
    ],
    ids=["alone", "pytest-asyncio"],
)
def test_every_block_passes(suite, plugins):
    status, output = pytest_in(suite, *plugins)
    assert status == 0, output
    assert "8 passed" in output


def test_markers_of_pytest_asyncio_change_nothing(suite):
    name = "test_marked.py"
    (suite / name).write_text(
        "import asyncio, pytest\n"
        "pytestmark = pytest.mark.asyncio\n"
        "class TestMarked:\n"
        "    async def test_virtual(self, virtual_group):\n"
        "        group = virtual_group()\n"
        "        await group.advance(45)\n"
        "        assert group.now_s == 45\n"
        "    async def test_real(self):\n"
        "        assert asyncio.get_running_loop().time() > 1\n"
    )
    status, output = pytest_in(suite, name, "-o", "asyncio_default_fixture_loop_scope=function")
    (suite / name).unlink()
    assert status == 0, output


def test_mistakes_are_told(suite):
    name = "test_mistakes.py"
    (suite / name).write_text(
        "import billing\n"
        "def test_sync(virtual_group): pass\n"
        "async def test_forgotten(virtual_group):\n"
        "    group = virtual_group()\n"
        "    group.start(billing.worker)\n"
        "    group.advance(45)\n"
        "async def test_fails(virtual_group):\n"
        "    group = virtual_group()\n"
        "    group.start(billing.worker)\n"
        "    await group.advance(45)\n"
        "    assert group.owners() == {}\n"
    )
    status, output = pytest_in(suite, name, "-p", "no:asyncio")
    (suite / name).unlink()
    assert status == 1
    assert "write `async def`" in output
    assert "write `await group.advance(…)`" in output
    assert "FindCoordinator to coordinator:7400: NONE" in output  # The transcript.
    assert "never awaited" not in output
