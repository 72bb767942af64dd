"""Log lines about security: refusals, reloads, expiry of the certificate, and insecure settings."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from coordinator.security.guard import Refusal
from coordinator.security.loading import Security, exposed
from coordinator.settings import Settings


def log_security(
    security: Security, settings: Settings, logger: structlog.stdlib.BoundLogger
) -> None:
    """Log refusals, reloads and expiry from now on, and insecure settings at once.

    No credential is in any line: principals, groups, rules and file names only.
    """

    def refused(refusal: Refusal) -> None:
        about = {
            "where": refusal.where,
            "principal": refusal.principal,
            "peer": refusal.peer,
            "rule": refusal.rule,
        }
        if refusal.operation:
            about |= {"operation": refusal.operation, "group": refusal.group or "*"}
        logger.warning("access_refused", reason=refusal.reason, **about)

    def expires(left_s: float) -> None:
        until = datetime.fromtimestamp(security.not_after_s, UTC).isoformat()
        if left_s > 0:
            logger.warning("certificate_expires_soon", expires=until)
        else:
            consequence = "new connections fail, and the node does not start again"
            logger.error("certificate_expired", expired=until, what=consequence)

    if security.guard is not None:
        security.guard.on_refusal = refused
    security.on_expiry = expires
    security.on_reload = lambda reason: logger.info("security_reloaded", what=reason)
    security.on_failure = lambda reason: logger.error("security_not_reloaded", what=reason)
    for mismatch in exposed(settings.security, settings.serving, settings.kafka):
        logger.warning("insecure", what=mismatch)
    if security.tls is not None:
        until = datetime.fromtimestamp(security.not_after_s, UTC)
        logger.info("tls", certificate_expires=until.isoformat(), mutual=security.tls.is_mutual)
        security.check_expiry()
        kafka = settings.kafka.kafka_advertised_address
        own = settings.serving.advertised_host or settings.serving.listen_address[0]
        for host in dict.fromkeys([own, *([] if kafka is None else [kafka[0]])]):
            if not security.tls.material.is_for(host):
                mismatch = f"the certificate is not valid for {host}, which this node advertises"
                logger.warning("certificate_of_another_name", what=mismatch)
        if security.guard is None:
            logger.warning(
                "insecure",
                what="callers are not authenticated: anybody who can connect may do everything",
            )
