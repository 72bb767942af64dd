"""Access control at a real server: tokens, JSON web tokens, certificates, rules, streams."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import threading
import time

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from jwt.algorithms import ECAlgorithm

from coordinator.client import CommitFailed, Credentials, FatalError, Member
from coordinator.operator.admin import GroupAdmin
from coordinator.operator.cluster import ClusterAdmin
from coordinator.service import pipeline as pipeline_module
from coordinator.service.grpc.calls import METHODS
from coordinator.v1 import admin_pb2 as pb2
from coordinator.v1 import admin_pb2_grpc, group_pb2_grpc, session_pb2_grpc
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import session_pb2 as sb
from tests.integration.groups import eventually
from tests.integration.waiting import until
from tests.kit.auth_files import AuthFiles, rule
from tests.kit.certificates import Authority
from tests.kit.patience import HANG_S
from tests.kit.serving import running

CODE = grpc.StatusCode


@pytest.fixture
def files(tmp_path):
    return AuthFiles(
        tmp_path, rule("token:etl", "join commit", "etl-*"), rule("token:op", "*", "*")
    )


async def joined(member: Member) -> None:
    async with asyncio.timeout(HANG_S):
        while not member.assignment:
            await member.poll(timeout=0.2)


async def commit_until_refused(member: Member) -> None:
    async with asyncio.timeout(HANG_S):
        while True:
            await member.commit(dict.fromkeys(member.assignment, 1))
            await asyncio.sleep(0.05)


async def answered_in_time(begin):
    """The first answer of a stream, once the token it shows is known to the server."""
    async with asyncio.timeout(HANG_S):
        while True:
            try:
                return await begin().read()
            except grpc.aio.AioRpcError as error:
                # gRPC's client says INTERNAL if it is refused before its message is on its way.
                if error.code() not in (CODE.UNAUTHENTICATED, CODE.INTERNAL):
                    raise
            await asyncio.sleep(0.02)


async def code_of(call) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


async def attached(channel, group: str, metadata):
    """The open stream of a process that has attached to a session group."""
    stream = session_pb2_grpc.GroupSessionsStub(channel).Session(metadata=metadata)
    attach = sb.Attach(group_id=group, incarnation={"id": os.urandom(16)}, stream_number=1)
    await stream.write(sb.SessionRequest(attach=attach))
    assert (await stream.read()).HasField("attached")
    return stream


async def ended_with(stream) -> grpc.StatusCode:
    """Beat on a stream until it ends; how it ended."""
    number = 0
    async with asyncio.timeout(HANG_S):
        while True:
            number += 1
            await asyncio.sleep(0.1)
            try:
                beat = sb.SessionHeartbeat(number=number)
                await stream.write(sb.SessionRequest(heartbeat=beat))
                await stream.read()
            except grpc.aio.AioRpcError as error:
                return error.code()
            except asyncio.InvalidStateError:  # It had ended before the write.
                return await stream.code()


async def test_nothing_is_answered_without_a_credential_but_health(files):
    async with running(**files.settings) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            for metadata in (None, [("authorization", "Bearer guess")], [("authorization", "x")]):
                call = stub.JoinGroup(pb.JoinGroupRequest(group_id="etl-1"), metadata=metadata)
                code, details = await code_of(call)
                assert code is CODE.UNAUTHENTICATED
                assert "--token-file" in details
            reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            stream = reflection.ServerReflectionInfo(iter([request]))
            assert (await code_of(stream.read()))[0] is CODE.UNAUTHENTICATED
            assert len(server.refused) == 4
            held = files.token("nobody2")
            answer = await answered_in_time(
                lambda: reflection.ServerReflectionInfo(iter([request]), metadata=held.metadata())
            )
            assert answer.list_services_response.service
        assert {r.reason for r in server.refused} == {"unauthenticated"}
        assert server.server.pipeline.calls[("JoinGroup", "UNAUTHENTICATED")] == 3


async def test_no_rpc_is_reached_by_who_shows_nothing_but_those_that_are_open(files):
    async with (
        running(**files.settings) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        found = {}
        for name, method in METHODS.items():
            if method.kind.name in ("Session", "ServerReflectionInfo"):
                call = channel.stream_stream(name)(iter([b""]))
            elif method.kind.name in ("Watch", "WatchRebalances"):
                call = channel.unary_stream(name)(b"")
            else:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await (call := channel.unary_unary(name)(b""))
                found[name] = await call.code()
                continue
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.read()
            call.cancel()
            found[name] = await call.code()
        refused = {name for name, code in found.items() if code is CODE.UNAUTHENTICATED}
        assert refused == {name for name, method in METHODS.items() if not method.kind.is_open}


async def test_a_node_that_asks_nobody_has_nothing_in_a_calls_way(monkeypatch):
    monkeypatch.setattr(pipeline_module, "Access", None)
    async with running() as server:
        assert server.security.guard is None
        assert await beats(server, Credentials()) is CODE.OK


async def test_a_principal_may_do_what_a_rule_says_and_nothing_else(files):
    etl = files.token("etl")
    async with running(**files.settings) as server:
        async with Member(server.address, "etl-1", {"t": 1}, credentials=etl) as member:
            await joined(member)
            await member.commit(dict.fromkeys(member.assignment, 3))
            assert server.refused == []
        with pytest.raises(FatalError) as caught:
            async with Member(server.address, "other", {"t": 1}, credentials=etl) as member:
                await joined(member)
        assert caught.value.code == "PERMISSION_DENIED"
        assert "token:etl may not" in str(caught.value)
        refused = server.refused[-1]
        assert (refused.principal, refused.group) == ("token:etl", "other")
        assert refused.rule == "none: denied by default"
        async with etl.open_aio(server.address) as channel:
            shown = etl.metadata()
            stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            admin = admin_pb2_grpc.GroupAdminStub(channel)
            for call, request, operation in (
                (stub.JoinGroup, pb.JoinGroupRequest(group_id="x"), "join"),
                (stub.OffsetCommit, pb.OffsetCommitRequest(group_id="x"), "commit"),
                (stub.OffsetFetch, pb.OffsetFetchRequest(group_id="x"), "read or commit"),
                (stub.PutDocuments, pb.PutDocumentsRequest(group_id="x"), "commit"),
                (stub.FetchDocuments, pb.FetchDocumentsRequest(group_id="x"), "read or commit"),
                (admin.DeleteGroups, pb2.DeleteGroupsRequest(groups_names=["etl-1"]), "admin"),
                (admin.DescribeGroups, pb2.DescribeGroupsRequest(groups=["etl-1"]), "read"),
                (admin.RemoveMembers, pb2.RemoveMembersRequest(group_id="etl-1"), "admin"),
                (admin.EvictMember, pb2.EvictMemberRequest(group_id="etl-1"), "admin"),
                (admin.SetGroupPolicy, pb2.SetGroupPolicyRequest(group_id="etl-1"), "admin"),
                (
                    admin.DescribeSessionGroup,
                    pb2.DescribeSessionGroupRequest(group_id="etl-1"),
                    "read",
                ),
            ):
                code, details = await code_of(call(request, metadata=shown))
                assert code is CODE.PERMISSION_DENIED
                assert f"may not {operation} on group" in details
                assert "ask for a rule" in details
                assert server.refused[-1].operation == operation


async def test_a_beat_for_a_group_that_is_not_ours_ends_the_whole_batch(files):
    etl = files.token("etl")
    async with running(**files.settings) as server, etl.open_aio(server.address) as channel:
        stub = group_pb2_grpc.GroupCoordinatorStub(channel)
        beats = [pb.HeartbeatRequest(group_id=g) for g in ("etl-1", "etl-2", "other")]
        shown = etl.metadata()
        good = pb.HeartbeatBatchRequest(heartbeats=beats[:2])
        bad = pb.HeartbeatBatchRequest(heartbeats=beats)
        assert len((await stub.HeartbeatBatch(good, metadata=shown)).heartbeats) == 2
        code, details = await code_of(stub.HeartbeatBatch(bad, metadata=shown))
        assert code is CODE.PERMISSION_DENIED
        assert "'other'" in details


async def test_a_list_shows_only_what_may_be_read(files):
    files.rules(
        rule("token:etl", "join", "*"),
        rule("token:op", "*", "*"),
        rule("token:team", "read", "a-*"),
        rule("token:team", "read", "a-secret", deny=True),
    )
    etl, op, team, nobody = (files.token(name) for name in ("etl", "op", "team", "none"))
    async with running(**files.settings) as server, contextlib.AsyncExitStack() as stack:
        for group in ("a-1", "a-2", "a-secret", "b-1"):
            member = Member(server.address, group, {"t": 1}, credentials=etl)
            await joined(await stack.enter_async_context(member))

        def seen(credentials):
            with GroupAdmin(server.address, credentials=credentials) as admin:
                return [group.group_id for group in admin.list_groups()]

        assert await asyncio.to_thread(seen, op) == ["a-1", "a-2", "a-secret", "b-1"]
        assert await asyncio.to_thread(seen, team) == ["a-1", "a-2"]
        assert await asyncio.to_thread(seen, nobody) == []

        async with team.open_aio(server.address) as channel:
            stub = admin_pb2_grpc.GroupAdminStub(channel)
            watching = stub.WatchRebalances(pb2.WatchRebalancesRequest(), metadata=team.metadata())
            await until(lambda: server.server.pipeline.quotas.streams == 1)
            for group in ("b-2", "a-3"):
                member = Member(server.address, group, {"t": 1}, credentials=etl)
                await joined(await stack.enter_async_context(member))
            async with asyncio.timeout(HANG_S):
                assert (await watching.read()).group_id == "a-3"
            watching.cancel()
            asked = pb2.WatchRebalancesRequest(group_ids=["a-1", "b-1"])
            refused = stub.WatchRebalances(asked, metadata=team.metadata())
            assert (await code_of(refused.read()))[0] is CODE.PERMISSION_DENIED


async def test_rules_and_tokens_take_effect_when_their_files_change(files):
    etl = files.token("etl")
    async with running(**files.settings) as server, etl.open_aio(server.address) as channel:
        stub = group_pb2_grpc.GroupCoordinatorStub(channel)
        shown = etl.metadata()
        beat = pb.HeartbeatRequest(group_id="other")

        async def until(code: grpc.StatusCode | None) -> None:
            async with asyncio.timeout(HANG_S):
                while True:
                    try:
                        await stub.Heartbeat(beat, metadata=shown)
                        found = None
                    except grpc.aio.AioRpcError as error:
                        found = error.code()
                    if found is code:
                        return
                    await asyncio.sleep(0.02)

        await until(CODE.PERMISSION_DENIED)
        files.rules(rule("token:etl", "join", "other"))
        await until(None)
        stream, second = [await attached(channel, "other", shown) for _ in range(2)]
        # Half a file: the old rules stay.
        failures: list[str] = []
        server.security.on_failure = failures.append
        files.rules("[[rule]]\nprincipal = ")
        await eventually(lambda: failures)
        assert "rules not reloaded" in failures[0]
        assert len(failures) == server.security.reload_failures == 1
        await until(None)
        files.rules("")
        await until(CODE.PERMISSION_DENIED)
        assert await ended_with(stream) is CODE.PERMISSION_DENIED  # It was open all the time.
        files.revoke("etl")
        await until(CODE.UNAUTHENTICATED)
        assert await ended_with(second) is CODE.UNAUTHENTICATED


async def test_a_certificate_says_who_calls_and_a_token_counts_for_more(files, tmp_path):
    ca = Authority(tmp_path / "tls")
    cert, key = ca.issue("node")
    mine, my_key = ca.issue("etl-worker", common_name="etl-worker")
    files.rules(rule("cert:etl-worker", "join", "etl"), rule("token:op", "join", "op"))
    op = files.token("op")
    settings = {"tls_cert_file": cert, "tls_key_file": key, "tls_client_ca_file": ca.file}
    known = {"ca_file": ca.file, "cert_file": mine, "key_file": my_key}
    async with running(**settings, **files.settings) as server:
        async with Credentials(**known).open_aio(server.address) as channel:
            stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            assert await stub.Heartbeat(pb.HeartbeatRequest(group_id="etl"))
            code, details = await code_of(stub.Heartbeat(pb.HeartbeatRequest(group_id="op")))
            assert (code, details.split(" may")[0]) == (CODE.PERMISSION_DENIED, "cert:etl-worker")
            shown = op.metadata()
            assert await stub.Heartbeat(pb.HeartbeatRequest(group_id="op"), metadata=shown)
            bad = (("authorization", "Bearer guess"),)
            call = stub.Heartbeat(pb.HeartbeatRequest(group_id="etl"), metadata=bad)
            assert (await code_of(call))[0] is CODE.UNAUTHENTICATED


async def test_commands_to_nodes_need_admin_on_everything(files):
    files.rules(rule("token:a", "admin", "a-*"), rule("token:op", "admin", "*"))
    some, op = files.token("a"), files.token("op")
    async with running(**files.settings) as server:

        def elect(credentials):
            with ClusterAdmin(server.address, credentials=credentials) as admin:
                admin.elect()

        with pytest.raises(grpc.RpcError) as caught:
            await asyncio.to_thread(elect, some)
        assert caught.value.code() is CODE.PERMISSION_DENIED
        with pytest.raises(LookupError, match="no other nodes"):  # It was let through.
            await asyncio.to_thread(elect, op)


async def test_a_member_keeps_its_place_while_its_token_is_exchanged(files, tmp_path):
    files.token("etl")
    path = tmp_path / "token"
    path.write_text(files.tokens["etl"])
    shown = Credentials(token_file=str(path))
    async with running(**files.settings) as server:
        settings = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 100}
        async with Member(
            server.address, "etl-1", {"t": 1}, credentials=shown, **settings
        ) as member:
            await joined(member)
            generation = member.generation
            files.revoke("etl")
            await eventually(lambda: server.refused)
            files.token("etl")
            path.write_text(files.tokens["etl"])
            heard = server.server.pipeline.heartbeats
            await until(lambda: server.server.pipeline.heartbeats > heard + 3)
            assert await member.poll() == []
            assert member.assignment
            assert member.generation == generation
            files.rules(rule("token:etl", "join", "etl-*"))
            with pytest.raises(CommitFailed) as caught:
                await commit_until_refused(member)
            assert caught.value.code == "PERMISSION_DENIED"


# --- JSON web tokens ------------------------------------------------------------------------------


class Issuer:
    """Signs, and publishes its keys over HTTP, counting how often it is asked."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.asked = 0
        self.jwks = json.dumps(
            {"keys": [{**json.loads(ECAlgorithm.to_jwk(self.key.public_key())), "kid": "k",
                       "alg": "ES256", "use": "sig"}]}
        )  # fmt: skip

    def token(self, subject: str, *, seconds: float = 600, kid: str = "k") -> Credentials:
        claims = {"sub": subject, "aud": "groups", "exp": time.time() + seconds}
        signed = jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": kid})
        return Credentials(token=signed)

    @contextlib.contextmanager
    def serving(self):
        issuer = self

        class Keys(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(issuer.jwks.encode())

            def log_message(self, *_: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keys) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield f"http://127.0.0.1:{server.server_address[1]}/keys"
            server.shutdown()
            thread.join()


async def beats(server, credentials, group="g") -> grpc.StatusCode:
    async with credentials.open_aio(server.address) as channel:
        stub = group_pb2_grpc.GroupCoordinatorStub(channel)
        try:
            await stub.Heartbeat(
                pb.HeartbeatRequest(group_id=group), metadata=credentials.metadata()
            )
        except grpc.aio.AioRpcError as error:
            return error.code()
    return CODE.OK


@pytest.mark.parametrize("kind", ["file", "url"])
async def test_json_web_tokens_by_the_keys_of_a_file_or_a_url(tmp_path, kind):
    issuer = Issuer()
    (tmp_path / "jwks.json").write_text(issuer.jwks)
    (tmp_path / "rules").write_text(rule("jwt:alice", "join", "g"))
    with issuer.serving() as url:
        settings = {
            "auth_jwks": url if kind == "url" else str(tmp_path / "jwks.json"),
            "auth_jwt_audience": "groups",
            "auth_rules_file": str(tmp_path / "rules"),
        }
        async with running(**settings) as server:
            assert await beats(server, issuer.token("alice")) is CODE.OK
            assert await beats(server, issuer.token("alice"), "h") is CODE.PERMISSION_DENIED
            assert await beats(server, issuer.token("bob")) is CODE.PERMISSION_DENIED
            assert await beats(server, Issuer().token("alice")) is CODE.UNAUTHENTICATED
            assert await beats(server, issuer.token("alice", seconds=-60)) is CODE.UNAUTHENTICATED
            for number in range(10):
                strange = issuer.token("alice", kid=f"strange-{number}")
                assert await beats(server, strange) is CODE.UNAUTHENTICATED
        # Keys that nobody knows are not asked for again and again.
        assert issuer.asked == (1 if kind == "url" else 0)


async def test_keys_that_cannot_be_fetched_are_not_the_callers_fault(tmp_path):
    issuer = Issuer()
    settings = {"auth_jwks": "http://127.0.0.1:1/keys", "auth_jwt_audience": "groups"}
    async with running(**settings) as server:
        assert await beats(server, issuer.token("alice")) is CODE.UNAVAILABLE
        assert server.server.pipeline.calls[("Heartbeat", "UNAVAILABLE")] == 1
    for text in ("<html>sorry</html>", '{"keys": []}'):
        issuer.jwks = text
        with issuer.serving() as url:
            async with running(**{**settings, "auth_jwks": url}) as server:
                assert await beats(server, issuer.token("alice")) is CODE.UNAVAILABLE


async def test_a_stream_ends_when_its_token_does(tmp_path):
    issuer = Issuer()
    (tmp_path / "jwks.json").write_text(issuer.jwks)
    settings = {"auth_jwks": str(tmp_path / "jwks.json"), "auth_jwt_audience": "groups"}
    async with running(**settings) as server:
        short = issuer.token(
            "alice", seconds=-22
        )  # Expired, but within the 30 s by which clocks may differ.
        async with short.open_aio(server.address) as channel:
            stream = await attached(channel, "g", short.metadata())
            assert await ended_with(stream) is CODE.UNAUTHENTICATED
