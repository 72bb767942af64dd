"""The log says in time that the certificate of a node expires, on virtual time."""

from __future__ import annotations

import asyncio
import time

import pytest
from structlog import get_logger
from structlog.testing import capture_logs

from coordinator.cli.security_log import log_security
from coordinator.security.loading import Security
from coordinator.settings import Settings
from tests.kit.certificates import Authority

DAY_S = 86_400
LOOK_S = 600.0
SOON, EXPIRED = ("warning", "certificate_expires_soon"), ("error", "certificate_expired")


def notices(lines: list) -> list[tuple[str, str]]:
    return [
        (line["log_level"], line["event"])
        for line in lines
        if line["event"].startswith("certificate_exp")
    ]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("days", "at_start", "later"),
    [
        (9, [], []),
        (7.5, [], [SOON]),
        (6, [SOON], []),
        (1.5, [SOON], [SOON]),
        (0.5, [SOON], [EXPIRED]),
    ],
)
async def test_each_notice_of_a_certificates_expiry_is_logged_once(tmp_path, days, at_start, later):
    cert, key = Authority(tmp_path).issue("node", days=days)
    settings = Settings.of(tls_cert_file=cert, tls_key_file=key)
    loop = asyncio.get_running_loop()
    ahead_s = time.time() - loop.time()
    security = Security(settings.security, wall_s=lambda: loop.time() + ahead_s)
    with capture_logs() as lines:
        log_security(security, settings, get_logger())
        assert notices(lines) == at_start
        watching = asyncio.create_task(security.watch(LOOK_S))
        await asyncio.sleep(DAY_S)
        watching.cancel()
    assert notices(lines) == at_start + later


@pytest.mark.virtual_time
async def test_the_expiry_of_a_reloaded_certificate_is_logged_anew(tmp_path):
    authority = Authority(tmp_path)
    cert, key = authority.issue("node", days=5)
    settings = Settings.of(tls_cert_file=cert, tls_key_file=key)
    security = Security(settings.security)
    with capture_logs() as lines:
        log_security(security, settings, get_logger())
        watching = asyncio.create_task(security.watch(LOOK_S))
        for days, count in ((30, 1), (6, 2)):
            authority.issue("node", days=days)
            await asyncio.sleep(3 * LOOK_S)
            assert notices(lines) == [SOON] * count
        watching.cancel()
