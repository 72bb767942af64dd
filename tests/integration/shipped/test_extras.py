"""Each extra is put alone into an empty environment, and used there."""

from __future__ import annotations

import re
import subprocess
import textwrap
import tomllib
from pathlib import Path

import pytest

from tests.kit.linked_environment import NO_NETWORK, ROOT, build_wheel, install, make_environment

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NO_INDEX = [*NO_NETWORK, "dns error", "Connection refused", "client error (Connect)", "timed out"]

# Uses of each extra, as a few lines of Python that run in the folder of the test.
USES = {
    "fast": """
        import asyncio, uvloop
        from coordinator.cli.serve import run
        async def main():
            assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
            return 7
        assert run(main()) == 7
        """,
    "files": """
        import pyarrow, pyarrow.parquet, pathlib
        from coordinator.sources.location import open_source
        pathlib.Path("log/part=0").mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2]}), "log/part=0/a.parquet")
        source = open_source("parquet:log")
        assert source.schema().names == ["x", "part"]
        """,
    "kafka": """
        from coordinator.sources.location import open_source
        source = open_source("kafka://127.0.0.1:1/flights#socket.timeout.ms=100")
        assert "offset" in source.schema().names
        import confluent_kafka
        confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}).close()
        """,
    "kafka-listener": """
        import coordinator.service.kafka.listener
        from coordinator.kafka import apis, codec
        from coordinator.kafka.headers import RequestHeader
        header = RequestHeader(apis.LIST_GROUPS, 4, 1, "", 0)
        assert codec.decode(header, bytes([2, 7, *b"Stable", 0])).states_filter == ("Stable",)
        """,
    "sql": """
        import sqlite3
        from coordinator.sources.location import open_source
        with sqlite3.connect("t.db") as connection:
            connection.execute("CREATE TABLE flights (id INTEGER PRIMARY KEY, origin TEXT)")
            connection.execute("INSERT INTO flights VALUES (1, 'EWR'), (2, 'JFK')")
        source = open_source("sql:sqlite:///t.db#table=flights&key=id")
        (batch,) = source.read(0, 0, source.end_offset(0))
        assert batch.num_rows == 2, batch
        """,
    "zookeeper": """
        import asyncio
        from coordinator.runtime.stores import open_to_read
        from coordinator.settings.sections import StorageConfig
        from coordinator.storage.log import CannotOpen
        try:
            asyncio.run(open_to_read(StorageConfig(store="zookeeper://127.0.0.1:1/x")))
        except CannotOpen as error:
            assert "pip install" not in str(error), error
        """,
    "postgres": """
        import asyncio
        from coordinator.runtime.stores import open_to_read
        from coordinator.settings.sections import StorageConfig
        from coordinator.storage.log import CannotOpen
        try:
            asyncio.run(open_to_read(StorageConfig(store="postgresql://127.0.0.1:1/x")))
        except CannotOpen as error:
            assert "pip install" not in str(error), error
        """,
    "etcd": """
        import asyncio
        from coordinator.runtime.stores import open_to_read
        from coordinator.settings.sections import StorageConfig
        from coordinator.storage.log import CannotOpen
        try:
            asyncio.run(open_to_read(StorageConfig(store="etcd://127.0.0.1:1/x")))
        except CannotOpen:
            pass
        """,
    "otel": """
        from coordinator.service.calls import JOIN_GROUP, Call
        from coordinator.service.otel import open_tracer
        tracer, end = open_tracer("http://127.0.0.1:1", 0, "here:1")
        class OneGroup(Call):
            system, groups = "here", ["g"]
        with tracer.call(OneGroup(JOIN_GROUP)) as span:
            span.parked()
            span.answered("NONE")
        end()
        """,
    "tls": """
        import datetime
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from coordinator.security.tls import ServerTls
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        now = datetime.datetime.now(datetime.timezone.utc)
        day = datetime.timedelta(days=1)
        certificate = (
            x509.CertificateBuilder().subject_name(name).issuer_name(name)
            .public_key(key.public_key()).serial_number(1)
            .not_valid_before(now - day).not_valid_after(now + day)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        open("cert", "wb").write(certificate.public_bytes(pem))
        open("key", "wb").write(key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        assert ServerTls("cert", "key").material.is_for("localhost")
        """,
    "jwt": """
        import json, time, jwt
        from cryptography.hazmat.primitives.asymmetric import ec
        from coordinator.security.jwt import JwtVerifier, keys_of_text
        key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
        keys = keys_of_text(json.dumps({"keys": [{**public, "kid": "1", "alg": "ES256"}]}))
        claims = {"sub": "etl", "aud": "me", "exp": time.time() + 600}
        token = jwt.encode(claims, key, "ES256", headers={"kid": "1"})
        verifier = JwtVerifier(keys, audience="me", issuer="", claim="sub")
        assert verifier.verify(token).subject == "etl"
        """,
    "png": """
        from pathlib import Path
        from coordinator.cli.why import _write_picture
        svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
        _write_picture(Path("x.png"), svg)
        assert Path("x.png").read_bytes().startswith(b"\\x89PNG")
        """,
    "delta": """
        import pyarrow
        from coordinator.spark.sinks.delta import DeltaSink
        from coordinator.spark.sinks.protocol import Decision
        sink = DeltaSink("table")
        token = sink.stage(pyarrow.table({"x": [1, 2]}), "a")
        sink.commit(token, Decision("g", 1, "n", token))
        assert sink.recover(Decision("g", 1)) == 1
        """,
    "iceberg": """
        import os, pyarrow
        from coordinator.spark.sinks.iceberg import IcebergSink
        from coordinator.spark.sinks.protocol import Decision
        here = os.getcwd()
        catalog = {"type": "sql", "uri": f"sqlite:///{here}/c.db", "warehouse": f"file://{here}/w"}
        sink = IcebergSink("ns.t", "lake", catalog)
        token = sink.stage(pyarrow.table({"x": [1, 2]}), "a")
        sink.commit(token, Decision("g", 1, "n", token))
        assert sink.recover(Decision("g", 1)) == 1
        """,
    "spark": """
        from coordinator.spark.stream import ConsumerGroupSource
        import pandas, pyarrow, pyarrow.parquet, pyspark
        import coordinator.spark.exactly_once
        assert ConsumerGroupSource.name() == "consumer_group"
        """,
    "connect": """
        # What PySpark checks when Connect is imported; PySpark itself is not in this extra.
        import google.rpc, grpc, grpc_status, pandas, pyarrow, zstandard
        assert tuple(map(int, zstandard.__version__.split(".")[:2])) >= (0, 25)
        """,
    "demo": """
        import sys, matplotlib
        from coordinator.spark import consume
        sys.path.insert(0, sys.argv[1] + "/deploy/spark")
        from flights import dataset
        assert len(dataset.read()) == dataset.FLIGHTS
        """,
}
IN_USE = {"test", "dev", "docs", "fuzz"}
"""Extras of those who work on the project: `tests/run` and its tests use what they bring."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def installed(wheel: Path, extra: str, home: Path) -> Path:
    """The interpreter of a new environment with one extra, and nothing else."""
    python, missing = make_environment(home, wheel, extra)
    if missing and (done := install(python, missing)).returncode != 0:
        if any(sign in done.stderr for sign in NO_INDEX):
            pytest.skip(f"no index answers: {done.stderr.splitlines()[-1]}")
        pytest.fail(done.stderr, pytrace=False)
    return python


def run(python: Path, *arguments: str, cwd: Path) -> None:
    done = subprocess.run(
        [python, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{arguments[:3]}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_each_extra_is_used_by_a_test():
    assert set(USES) | IN_USE == set(EXTRAS)


@pytest.mark.parametrize("extra", USES)
def test_an_extra_alone_does_what_it_is_for(wheel, tmp_path, extra):
    python = installed(wheel, extra, tmp_path / "home")
    work = tmp_path / "work"
    work.mkdir()
    run(python, "-I", "-c", textwrap.dedent(USES[extra]), str(ROOT), cwd=work)


AGREE = ("grpcio-health-checking", "grpcio-reflection", "grpcio-status", "ortools", "protobuf")
"""Packages that ask for ranges of protobuf, so that their newest releases may not go together."""


def resolved(requirements: str, *flags: str) -> dict[str, str]:
    """Versions that a resolver takes, by package."""
    command = ["uv", "pip", "compile", "--no-header", "--no-annotate", "--quiet", *flags, "-"]
    done = subprocess.run(
        command, cwd=ROOT, input=requirements, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 and any(sign in done.stderr for sign in NO_INDEX):
        pytest.skip(f"no index answers: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return dict(line.split("==", 1) for line in done.stdout.split("\n") if "==" in line)


def test_the_extra_for_tests_is_resolved_without_a_search():
    """Resolvers that try release after release, as pip 23 does, took more than ten minutes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = [*project["dependencies"], *EXTRAS["test"]]
    bounds = [
        message for message in told if re.split(r"[<>=!\[; ]", message, maxsplit=1)[0] in AGREE
    ]
    newest = resolved("\n".join(bounds), "--no-deps")
    together = resolved(".[test]")
    assert {name: together[name] for name in AGREE} == newest
