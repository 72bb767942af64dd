"""TLS: who is let in, which versions, and certificates exchanged under live connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
import warnings

import grpc
import pytest
from cryptography import x509
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from coordinator.cli.main import main
from coordinator.client import BlockingMember, Credentials, Member
from coordinator.handshake import tls_failure
from coordinator.operator.admin import GroupAdmin
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from tests.integration.groups import eventually
from tests.integration.waiting import wait_until
from tests.kit.certificates import Authority, content, replace
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, running


@pytest.fixture
def ca(tmp_path):
    return Authority(tmp_path / "tls")


def served_with(cert: str, key: str, **more: str) -> dict[str, str]:
    return {"tls_cert_file": cert, "tls_key_file": key, **more}


def shaken(port: int, ca: str, *, certificate=None, most=None) -> tuple[str, str]:
    """A handshake of our own: the version agreed on, and the serial number of the certificate."""
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(*certificate)
    if most is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = most
        context.set_ciphers("ALL:@SECLEVEL=0")  # Ours, so that the refusal is the server's.
    with socket.create_connection(("127.0.0.1", port)) as raw:
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            connection.settimeout(HANG_S)
            return connection.version(), connection.getpeercert()["serialNumber"]


def serial_of(cert: str) -> str:
    number = x509.load_pem_x509_certificate(content(cert)).serial_number
    return number.to_bytes((number.bit_length() + 7) // 8).hex().upper()


async def joined(member: Member) -> None:
    async with asyncio.timeout(HANG_S):
        while not member.assignment:
            await member.poll(timeout=0.2)


async def test_a_member_joins_and_commits_over_tls(ca):
    async with running(**served_with(*ca.issue("node"))) as server:
        trusting = Credentials(ca_file=ca.file)
        async with Member(server.address, "g", {"t": 2}, credentials=trusting) as member:
            await joined(member)
            await member.commit(dict.fromkeys(member.assignment, 7))
            assert set((await member.committed()).values()) == {7}


async def refusal(server, credentials: Credentials) -> grpc.aio.AioRpcError:
    async with credentials.open_aio(server.address) as channel:
        stub = group_pb2_grpc.GroupCoordinatorStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.FindCoordinator(pb.FindCoordinatorRequest(group_id="g"), timeout=HANG_S)
    return caught.value


async def test_who_does_not_trust_the_node_or_speaks_plain_text_gets_no_answer(ca, tmp_path):
    stranger = Authority(tmp_path / "stranger")
    async with running(**served_with(*ca.issue("node"))) as server:
        for credentials in (Credentials(ca_file=stranger.file), Credentials()):
            error = await refusal(server, credentials)
            assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_mutual_tls_lets_in_only_certificates_of_the_authority(ca, tmp_path):
    stranger = Authority(tmp_path / "stranger")
    settings = served_with(*ca.issue("node"), tls_client_ca_file=ca.file)
    async with running(**settings) as server:
        cert, key = ca.issue("worker")
        known = Credentials(ca_file=ca.file, cert_file=cert, key_file=key)
        async with Member(server.address, "g", {"t": 2}, credentials=known) as member:
            await joined(member)
        cert, key = stranger.issue("worker")
        unknown = Credentials(ca_file=ca.file, cert_file=cert, key_file=key)
        for credentials in (unknown, Credentials(ca_file=ca.file)):
            error = await refusal(server, credentials)
            assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_only_tls_1_2_and_newer_is_spoken(ca):
    async with running(**served_with(*ca.issue("node"))) as server:
        port = server.server.port
        assert (await asyncio.to_thread(shaken, port, ca.file))[0] == "TLSv1.3"
        newest = ssl.TLSVersion.TLSv1_2
        assert (await asyncio.to_thread(shaken, port, ca.file, most=newest))[0] == "TLSv1.2"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(shaken, port, ca.file, most=old)


async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_go_on(ca):
    cert, key = ca.issue("node")
    async with running(**served_with(cert, key)) as server:
        port, before = server.server.port, serial_of(cert)
        assert (await asyncio.to_thread(shaken, port, ca.file))[1] == before
        async with Credentials(ca_file=ca.file).open_aio(server.address) as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            asked = reflection_pb2.ServerReflectionRequest(list_services="")
            stream = stub.ServerReflectionInfo()
            await stream.write(asked)
            assert (await stream.read()).list_services_response.service
            ca.issue("node")
            after = serial_of(cert)
            assert before != after
            await eventually(lambda: shaken(port, ca.file)[1] == after)
            await stream.write(asked)
            assert (await stream.read()).list_services_response.service  # The same stream.
            await stream.done_writing()
        assert server.security.reload_failures == 0


async def test_a_new_authority_of_clients_is_asked_of_new_connections(ca, tmp_path):
    settings = served_with(*ca.issue("node"), tls_client_ca_file=str(tmp_path / "clients.pem"))
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    replace(settings["tls_client_ca_file"], content(old.file))
    async with running(**settings) as server:
        cert, key = new.issue("worker")
        known = Credentials(ca_file=ca.file, cert_file=cert, key_file=key)
        assert (await refusal(server, known)).code() is grpc.StatusCode.UNAVAILABLE
        replace(settings["tls_client_ca_file"], content(new.file))

        def answers() -> bool:
            with (
                contextlib.suppress(grpc.RpcError),
                GroupAdmin(server.address, credentials=known) as admin,
            ):
                return bool(admin.coordinator_of("g"))
            return False

        await eventually(answers)


@pytest.mark.parametrize("spoil", ["half", "other key", "expired", "gone"])
async def test_what_cannot_be_used_is_not_taken(ca, spoil):
    cert, key = ca.issue("node")
    failures: list[str] = []
    async with running(**served_with(cert, key)) as server:
        server.security.on_failure = failures.append
        before, port = serial_of(cert), server.server.port
        good = content(cert)
        if spoil == "half":
            replace(cert, good[: len(good) // 2])
        elif spoil == "other key":
            replace(key, content(ca.issue("other")[1]))
        elif spoil == "expired":
            ca.issue("node", days=-1)
        else:
            os.remove(key)
        await eventually(lambda: bool(failures))
        assert "the old stay in force" in failures[0]
        assert server.security.reload_failures == 1
        assert (await asyncio.to_thread(shaken, port, ca.file))[1] == before
        ca.issue("node")  # And it recovers.
        await eventually(lambda: shaken(port, ca.file)[1] == serial_of(cert))
        assert server.security.reload_failures == 1


# --- The command ------------------------------------------------------------------------------


def test_a_node_says_in_a_line_why_it_does_not_start(ca, tmp_path, capsys):
    cert, key = ca.issue("node")
    _, other_key = ca.issue("other")
    old_cert, old_key = ca.issue("old", days=-2)
    future = tmp_path / "rules.toml"
    future.write_text("[[rule]]\nprincipal = 3\n")
    tokens = tmp_path / "tokens"
    tokens.write_text("grafana plain-text-of-a-token\n")
    junk = tmp_path / "junk.pem"
    junk.write_text("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n")
    tls = ("--tls-cert-file", cert, "--tls-key-file", key)
    cases = [
        (("--tls-cert-file", cert), "tls_cert_file is given, and tls_key_file is not"),
        (("--tls-cert-file", cert, "--tls-key-file", other_key), "does not belong to"),
        (("--tls-cert-file", cert, "--tls-key-file", str(junk)), "no PEM key"),
        (("--tls-cert-file", str(junk), "--tls-key-file", key), "no PEM certificate"),
        (("--tls-cert-file", old_cert, "--tls-key-file", old_key), "the certificate expired at"),
        (("--tls-cert-file", f"{cert}.gone", "--tls-key-file", key), "cannot read"),
        ((*tls, "--tls-client-ca-file", str(junk)), "no PEM certificate"),
        ((*tls, "--auth-rules-file", str(future)), "nothing that tells who calls"),
        (("--auth-tokens-file", str(tokens)), "line 1 is not PRINCIPAL sha256:HEX"),
        (("--auth-jwks", str(future)), "auth_jwt_audience is not"),
        (("--auth-jwks", str(future), "--auth-jwt-audience", "c"), "no JWKS"),
        (("--listen", "0.0.0.0:0"), "is served in plain text"),
        (("--metrics-listen", "0.0.0.0:0"), "is served in plain text"),
        (("--listen", "0.0.0.0:0", *tls, "--metrics-listen", "[::]:0"), "is served to anyone"),
    ]
    for flags, said in cases:
        quiet = ("--store", "memory", "--console-listen", "", "--metrics-listen", "")
        assert main(["serve", "--listen", "127.0.0.1:0", *quiet, *flags]) == 2
        line = capsys.readouterr().err
        assert said in line
        assert len(line.splitlines()) == 1
        assert line.startswith("coordinator: ")
        assert "plain-text-of-a-token" not in line


def test_insecure_allows_it_with_a_warning():
    with Process("--listen", "0.0.0.0:0", "--insecure") as server:
        warnings_ = [line for line in server.lines if line["event"] == "insecure"]
        assert [line["level"] for line in warnings_] == ["warning"]
        assert "plain text" in warnings_[0]["what"]
        assert main(["groups", "list", "--bootstrap", server.address]) == 0


def test_the_command_and_the_member_speak_tls_by_flags_and_by_the_environment(
    ca, monkeypatch, capsys
):
    cert, key = ca.issue("node")
    mine, my_key = ca.issue("me")
    flags = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-client-ca-file", ca.file]
    with Process(*flags) as server:
        assert server.metrics.startswith("https://")
        options = ["--tls-ca", ca.file, "--tls-cert", mine, "--tls-key", my_key]
        assert main(["groups", "list", "--bootstrap", server.address]) == 1
        assert "no answer" in capsys.readouterr().err
        for given, said in (
            (["--tls-ca", ca.file], "requires a client certificate (--tls-cert, --tls-key)"),
            ([], "the node requires TLS"),
        ):
            assert main(["groups", "list", "--bootstrap", server.address, *given]) == 1
            assert said in capsys.readouterr().err
        wait_until(
            lambda: any(
                "a client sent no certificate" in line["what"]
                for line in list(server.lines)
                if line["event"] == "tls_handshake_failed"
            )
        )
        assert server.other == ""
        assert main(["groups", "list", "--bootstrap", server.address, *options]) == 0
        for name, value in (("CA", ca.file), ("CERT", mine), ("KEY", my_key)):
            monkeypatch.setenv(f"COORDINATOR_CLIENT_TLS_{name}", value)
        with BlockingMember(server.address, "orders", {"t": 1}) as member:
            until = time.monotonic() + HANG_S
            while not member.assignment and time.monotonic() < until:
                member.poll(timeout=0.2)
            assert main(["groups", "list", "--bootstrap", server.address]) == 0
            assert "orders" in capsys.readouterr().out
            assert main(["groups", "state", "orders", "--bootstrap", server.address]) == 0


async def test_clients_are_told_what_is_wrong_with_tls(ca, tmp_path, caplog):
    stranger = Authority(tmp_path / "stranger")
    mine, others = ca.issue("me"), stranger.issue("me")

    def as_(certificate=("", ""), trusted=ca.file, token="") -> Credentials:
        cert_file, key_file = certificate
        return Credentials(ca_file=trusted, cert_file=cert_file, key_file=key_file, token=token)

    async def trouble(server, credentials: Credentials) -> str:
        return await asyncio.to_thread(tls_failure, server.address, credentials)

    node = served_with(*ca.issue("node"))
    async with running(**node, tls_client_ca_file=ca.file) as server:
        assert "requires a client certificate in addition to the token (" in await trouble(
            server, as_(token="secret")
        )
        assert "requires a client certificate (" in await trouble(server, as_())
        assert "rejects this client certificate" in await trouble(server, as_(others))
        assert "is not trusted" in await trouble(server, as_(mine, trusted=stranger.file))
        assert "the node requires TLS" in await trouble(server, Credentials(token="secret"))
        assert await trouble(server, as_(mine)) == ""
        member = Member(server.address, "g", {"t": 1}, credentials=as_(token="secret"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANG_S):
                async with member:
                    while "in addition to the token" not in caplog.text:
                        await member.poll(timeout=0.1)
                    raise TimeoutError
        assert "requires a client certificate in addition to the token" in caplog.text
        assert "secret" not in caplog.text
    async with running(**node) as server:
        assert await trouble(server, as_()) == ""
    async with running() as server:
        assert "does not use TLS" in await trouble(server, as_())
        assert await trouble(server, Credentials()) == ""
    assert await trouble(server, as_()) == ""  # Nobody is there.
