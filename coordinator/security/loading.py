"""Loading of a node's security (TLS, guard) from its settings, and reloading when files change.

A file counts as changed once two looks in succession have found the same state, so a file that is
being written is not read. If a new file is not usable, the old content stays in force and
`on_failure` is called. The expiry of the certificate in force is announced in steps, each once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from coordinator.dial import Credentials, is_loopback, states
from coordinator.security import rules, tokens
from coordinator.security.authenticator import Authenticator
from coordinator.security.errors import CannotSecure
from coordinator.security.guard import Guard
from coordinator.security.rules import Rules
from coordinator.security.tls import ServerTls
from coordinator.settings.sections import KafkaConfig, SecurityConfig, ServingConfig

LOOK_S = 1.0
NEVER = float("inf")
DAY_S = 86_400.0
NOTICES_S = (7 * DAY_S, DAY_S, 0.0)
"""Time left to a certificate when its expiry is announced."""
PAGES = ("metrics_listen", "console_listen")
OF_EMBEDDED = "embedded"
"""Principal of those who have the token of an embedded node."""
NEEDS_EXTRA = "JSON web tokens need the extra: consumer-group-coordinator[jwt]"

T = TypeVar("T")


class Security:
    """TLS and guard of a node; each is None if the settings do not ask for it.

    Args:
        token: that every caller has to have, of a node without a file of tokens; empty: none.
    """

    def __init__(
        self,
        config: SecurityConfig,
        *,
        token: str = "",
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self.token = token
        self._wall_s = wall_s
        self._seen = states(self._files())
        self.tls = _tls(config)
        self.guard: Guard | None = None
        if config.is_guarded or token:
            self.guard = Guard(_authenticator(config, token), _rules(config))
        self.reload_failures = 0
        self.on_reload: Callable[[str], None] = lambda _: None
        """Called with the name of each part that was reloaded."""
        self.on_failure: Callable[[str], None] = lambda _: None
        """Called with the reason for which a part could not be reloaded."""
        self.on_expiry: Callable[[float], None] = lambda _: None
        """Called with the seconds left when the certificate is about to expire; <= 0: it has."""
        self._noticed = (NEVER, 0)

    @property
    def not_after_s(self) -> float:
        """Expiry of the certificate, in seconds since the epoch; infinite without one."""
        return NEVER if self.tls is None else self.tls.material.not_after_s

    @property
    def refusals(self) -> dict[str, int]:
        """Number of refusals by reason."""
        return {} if self.guard is None else dict(self.guard.refusals)

    def credentials(self) -> Credentials:
        """Credentials with which this node calls other nodes and itself."""
        config = self._config
        return Credentials(
            tls=self.tls is not None,
            ca_file=config.tls_peer_ca_file or config.tls_client_ca_file,
            cert_file=config.tls_cert_file,
            key_file=config.tls_key_file,
            token_file=config.auth_peer_token_file,
            token=self.token,
            insecure=config.insecure,
        )

    def use_token(self, token: str) -> None:
        """Have another token be the one that every caller has to have."""
        self.token = token
        assert self.guard is not None
        self.guard.replace(authenticator=_authenticator(self._config, token))

    def reload(self) -> None:
        """Reload all files; a part that cannot be loaded stays, and `on_failure` is called."""
        config, guard, tls = self._config, self.guard, self.tls
        if tls is not None:
            self._try("certificate", tls.reload)
        if guard is not None:
            self._try(
                "tokens and keys",
                lambda: guard.replace(authenticator=_authenticator(config, self.token)),
            )
            self._try("rules", lambda: guard.replace(rules=_rules(config)))

    def check_expiry(self) -> None:
        """Call `on_expiry` if a time of `NOTICES_S` has come; once for each and certificate."""
        left_s = self.not_after_s - self._wall_s()
        noticed_of, count = self._noticed
        if noticed_of != self.not_after_s:
            count = 0
        due = sum(left_s <= notice_s for notice_s in NOTICES_S)
        self._noticed = (self.not_after_s, max(due, count))
        if due > count:
            self.on_expiry(left_s)

    async def watch(self, look_s: float = LOOK_S) -> None:
        """Reload when a file has changed, and look at the expiry, until cancelled."""
        before = self._seen
        while True:
            await asyncio.sleep(look_s)
            now = states(self._files())
            if now != self._seen and now == before:
                self._seen = now
                self.reload()
            before = now
            self.check_expiry()

    def _try(self, subject: str, make: Callable[[], None]) -> None:
        try:
            make()
        except Exception as error:  # noqa: BLE001  # Whatever it is, the next change must be seen.
            self.reload_failures += 1
            self.on_failure(f"{subject} not reloaded, the old stay in force: {error}")
        else:
            self.on_reload(subject)

    def _files(self) -> list[str]:
        config = self._config
        named = (
            config.tls_cert_file,
            config.tls_key_file,
            config.tls_client_ca_file,
            config.auth_tokens_file,
            "" if _is_url(config.auth_jwks) else config.auth_jwks,
            config.auth_rules_file,
        )
        return [path for path in named if path]


def load(
    config: SecurityConfig, serving: ServingConfig, kafka: KafkaConfig, *, token: str = ""
) -> Security:
    """Load the security of a node; `serving` and `kafka` have its listen addresses.

    Args:
        token: as that of `Security`.
    Raises:
        CannotSecure: a file is not usable, settings contradict each other, or something would be
            served in plain text, or to anyone, beyond this machine.
    """
    if token and config.is_guarded:
        raise CannotSecure(
            "an embedded node has a token of its own, and no other callers: run `coordinator serve`"
        )
    _check(config, serving, kafka)
    return Security(config, token=token)


def exposed(config: SecurityConfig, serving: ServingConfig, kafka: KafkaConfig) -> list[str]:
    """List, in words, the exposures that are refused unless `insecure` is set."""
    exposed_by = []
    for name, address in (
        ("listen", serving.listen),
        ("kafka_listen", kafka.kafka_listen),
        *((name, getattr(serving, name)) for name in PAGES),
    ):
        host = address.rpartition(":")[0]
        if not address or is_loopback(host):
            continue
        if not config.tls_cert_file:
            exposed_by.append(f"{name} {address} is served in plain text")
        if name in PAGES and not config.is_guarded:
            exposed_by.append(f"{name} {address} is served to anyone")
    if config.auth_jwks.startswith("http://"):
        if not is_loopback(urlsplit(config.auth_jwks).hostname or ""):
            exposed_by.append("the keys of auth_jwks are fetched in plain text")
    return exposed_by


# --- Inside -------------------------------------------------------------------------------------


def _check(config: SecurityConfig, serving: ServingConfig, kafka: KafkaConfig) -> None:
    for one, other in (
        ("tls_cert_file", "tls_key_file"),
        ("tls_key_file", "tls_cert_file"),
        ("tls_client_ca_file", "tls_cert_file"),
        ("auth_jwks", "auth_jwt_audience"),
    ):
        if getattr(config, one) and not getattr(config, other):
            raise CannotSecure(f"{one} is given, and {other} is not")
    if config.auth_rules_file and not config.is_guarded:
        raise CannotSecure(
            "auth_rules_file is given, and nothing that tells who calls: "
            "tls_client_ca_file, auth_tokens_file or auth_jwks"
        )
    if not config.insecure and (failures := exposed(config, serving, kafka)):
        raise CannotSecure(
            f"{'; '.join(failures)}: give tls_cert_file and tls_key_file (and auth_tokens_file, "
            "auth_jwks or tls_client_ca_file for pages), listen on 127.0.0.1, "
            "or say --insecure if nobody else can reach this network"
        )


def _tls(config: SecurityConfig) -> ServerTls | None:
    if not config.tls_cert_file:
        return None
    return ServerTls(config.tls_cert_file, config.tls_key_file, config.tls_client_ca_file)


def _authenticator(config: SecurityConfig, token: str) -> Authenticator:
    known = tokens.Tokens([(OF_EMBEDDED, tokens.digest_of(token))]) if token else None
    if config.auth_tokens_file:
        known = _parsed(config.auth_tokens_file, tokens.parse)
    if not config.auth_jwks:
        return Authenticator(known)
    try:
        from coordinator.security import jwt
    except ImportError:
        raise CannotSecure(NEEDS_EXTRA) from None
    if _is_url(config.auth_jwks):
        find_key = jwt.keys_of_url(config.auth_jwks)
    else:
        find_key = _parsed(config.auth_jwks, jwt.keys_of_text)
    verifier = jwt.JwtVerifier(
        find_key,
        audience=config.auth_jwt_audience,
        issuer=config.auth_jwt_issuer,
        claim=config.auth_jwt_claim,
    )
    return Authenticator(known, verifier)


def _rules(config: SecurityConfig) -> Rules | None:
    if not config.auth_rules_file:
        return None
    return _parsed(config.auth_rules_file, rules.parse)


def _parsed(path: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotSecure(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CannotSecure(f"{path}: not text") from None
    except CannotSecure as error:
        raise CannotSecure(f"{path}: {error}") from error


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))
