"""Metrics and console of a guarded node; and that no secret is in anything it writes."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import time
import urllib.error
import urllib.request

import grpc
import pytest

from coordinator.cli.main import main
from coordinator.client import BlockingMember, Credentials
from tests.integration.groups import eventually
from tests.integration.security.test_access import Issuer, beats
from tests.kit.auth_files import AuthFiles, rule
from tests.kit.certificates import Authority, content
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

RULES = (
    rule("token:prometheus", "read", "*"),
    rule("cert:prometheus", "read", "*"),
    rule("token:team", "read join commit", "team-*"),
    rule("jwt:alice", "read", "*"),
)


@pytest.fixture
def ca(tmp_path):
    return Authority(tmp_path / "tls")


@pytest.fixture
def files(tmp_path):
    return AuthFiles(tmp_path, *RULES)


@contextlib.contextmanager
def served(files: AuthFiles, ca: Authority | None = None, *more: str):
    """A process with both pages, guarded; with an authority, over TLS."""
    flags = files.flags
    if ca is not None:
        cert, key = ca.issue("node")
        flags += ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-peer-ca-file", ca.file]
    with Process(*flags, "--console-listen", "127.0.0.1:0", *more) as server:
        yield server


def bearer(credentials: Credentials) -> dict[str, str]:
    return {"Authorization": f"Bearer {credentials.token}"}


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"me:{password}".encode()).decode()}


def get(url: str, headers=None, *, trust: str | None = None, certificate=None) -> tuple[int, str]:
    """Status and body."""
    context = ssl.create_default_context(cafile=trust) if trust else None
    if certificate is not None:
        context.load_cert_chain(*certificate)
    request = urllib.request.Request(url, headers=headers or {})
    try:
        with urllib.request.urlopen(request, context=context, timeout=HANG_S) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def refusals(server: Process) -> list[dict]:
    return [line for line in server.lines if line["event"] == "access_refused"]


def test_metrics_are_for_those_who_may_read_everything(files):
    prometheus, team = files.token("prometheus"), files.token("team")
    with served(files) as server:
        assert get(server.metrics)[0] == 401
        assert get(server.metrics, {"Authorization": "Bearer guess"})[0] == 401
        status, text = get(server.metrics, bearer(team))
        assert (status, "token:team may not read" in text) == (403, True)
        status, text = get(server.metrics, bearer(prometheus))
        assert status == 200
        assert 'coordinator_security_refusals_total{reason="unauthenticated"} 2.0' in text
        assert 'coordinator_security_refusals_total{reason="denied"} 1.0' in text
        assert "coordinator_security_reload_failures_total 0.0" in text
        assert "coordinator_certificate_expiry_timestamp_seconds +Inf" in text
        assert [line["reason"] for line in refusals(server)] == [
            "unauthenticated",
            "unauthenticated",
            "denied",
        ]
        denied = refusals(server)[-1]
        assert {k: denied[k] for k in ("where", "principal", "operation", "group", "rule")} == {
            "where": "metrics",
            "principal": "token:team",
            "operation": "read",
            "group": "*",
            "rule": "none: denied by default",
        }


def test_metrics_over_tls_take_a_certificate_too(files, ca):
    mine = ca.issue("prometheus", common_name="prometheus")
    other = ca.issue("other", common_name="other")
    with served(files, ca, "--tls-client-ca-file", ca.file) as server:
        assert get(server.metrics, trust=ca.file, certificate=mine)[0] == 200
        assert get(server.metrics, trust=ca.file, certificate=other)[0] == 403
        assert get(server.metrics, trust=ca.file)[0] == 401
        token = bearer(files.token("prometheus"))
        deadline = time.monotonic() + HANG_S
        while get(server.metrics, token, trust=ca.file)[0] != 200:  # Once the file is read again.
            assert time.monotonic() < deadline
            time.sleep(0.1)
        page = get(server.metrics, token, trust=ca.file)[1]
        found = [x for x in page.splitlines() if "certificate_expiry_timestamp_seconds " in x]
        assert 29 < (float(found[-1].split()[-1]) - time.time()) / 86_400 < 30
        # The console is asked with its reader's token, which a certificate cannot stand for.
        assert get(server.console, trust=ca.file, certificate=mine)[0] == 401
        assert get(server.console, token, trust=ca.file)[0] == 200
        assert get(f"{server.console}api/groups", token, trust=ca.file)[0] == 200


def test_the_console_shows_what_its_reader_may_read(files):
    team, prometheus = files.token("team"), files.token("prometheus")
    files.rules(*RULES, rule("token:prometheus", "join", "other"))
    with served(files) as server:
        console = server.console
        for path in (
            "",
            "main.js",
            "api/groups",
            "api/nodes",
            "api/group?group=team-1",
            "no-such-page",
        ):
            assert get(f"{console}{path}")[0] == 401
        with (
            BlockingMember(server.address, "team-1", {"t": 1}, credentials=team) as mine,
            BlockingMember(server.address, "other", {"t": 1}, credentials=prometheus) as other,
        ):
            while not (mine.assignment and other.assignment):
                mine.poll(timeout=0.1)
                other.poll(timeout=0.1)
            for headers in (bearer(team), basic(team.token)):  # A program, and a browser.
                assert get(console, headers)[0] == 200
                # By whatever name: only a page without a login must fear other names.
                assert get(console, {**headers, "Host": "groups.example"})[0] == 200
                status, text = get(f"{console}api/groups", headers)
                assert ('"team-1"' in text, '"other"' in text) == (True, False)
                assert get(f"{console}api/group?group=team-1", headers)[0] == 200
                status, text = get(f"{console}api/group?group=other", headers)
                assert (status, text.startswith("token:team may not")) == (403, True)
            status, text = get(f"{console}api/groups", bearer(prometheus))
            assert '"team-1"' in text
            assert '"other"' in text


def test_a_browser_is_asked_for_a_token(files):
    with served(files) as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(server.console)
        with caught.value as answer:
            assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")


def test_pages_beyond_the_loopback_want_tls_and_a_token(files, ca):
    team = files.token("team")
    everywhere = ("--metrics-listen", "0.0.0.0:0", "--console-listen", "0.0.0.0:0")
    with served(files, ca, *everywhere) as server:
        console = server.console.replace("0.0.0.0", "127.0.0.1")
        assert console.startswith("https://")
        assert get(console, trust=ca.file)[0] == 401
        assert get(console, bearer(team), trust=ca.file)[0] == 200
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(console.replace("https", "http"))
        cert, _ = ca.issue("node")  # A new one, while it runs.
        deadline = time.monotonic() + HANG_S
        host, port = console.removeprefix("https://").strip("/").split(":")
        while ssl.get_server_certificate((host, int(port)), ca_certs=ca.file).split() != (
            content(cert).decode().split()
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)


async def test_no_secret_is_in_anything_that_a_node_or_a_command_writes(files, ca, tmp_path, capfd):
    issuer = Issuer()
    (tmp_path / "jwks.json").write_text(issuer.jwks)
    team, stranger = files.token("team"), Credentials(token="stranger-" + "s3cret" * 5)
    alice = issuer.token("alice")
    forged = Issuer().token("alice")
    expired = issuer.token("alice", seconds=-100)
    (tmp_path / "my-token").write_text(team.token)
    more = (
        "--log-level", "debug", "--auth-jwks", str(tmp_path / "jwks.json"),
        "--auth-jwt-audience", "groups",
    )  # fmt: skip
    with served(files, ca, *more) as server:
        for shown in (team, stranger, alice, forged, expired):
            credentials = Credentials(ca_file=ca.file, token=shown.token)
            for group in ("team-1", "other"):
                assert await beats(server, credentials, group) is not grpc.StatusCode.UNKNOWN
            for url in (server.metrics, server.console, f"{server.console}api/groups"):
                for headers in (bearer(shown), basic(shown.token)):
                    assert get(url, headers, trust=ca.file)[0] in (200, 401, 403)
        options = ["--bootstrap", server.address, "--tls-ca", ca.file]
        assert main(["groups", "list", *options, "--token-file", str(tmp_path / "my-token")]) == 0
        assert main(["groups", "list", *options]) == 1
        with (tmp_path / "tokens").open("a") as file:
            file.write(f"\nteam {team.token}\n")  # In the wrong file, by mistake.
        await eventually(lambda: any("not_reloaded" in line["event"] for line in server.lines))
        assert len(refusals(server)) > 20
    out, err = capfd.readouterr()
    written = "\n".join(json.dumps(line) for line in server.lines) + server.other + out + err
    assert "token:team" in written
    assert "jwt:alice" in written
    key = content(str(tmp_path / "tls" / "node.key")).decode().splitlines()[1]
    secrets = [team, stranger, alice, forged, expired]
    for secret in (*(s.token for s in secrets), *files.tokens.values(), key):
        assert secret not in written
        assert base64.b64encode(f"me:{secret}".encode()).decode() not in written
        assert secret[8:40] not in written
