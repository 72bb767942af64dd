"""Certificate and key of a node: loading, checks, and rotation without a restart.

Open connections keep their certificate; new ones get the current one. gRPC calls `_changed` before
every handshake; HTTP and Kafka take `page_context` and `context` for every connection. All need TLS
1.2 or newer.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from coordinator.security.errors import CannotSecure

if TYPE_CHECKING:
    from cryptography.x509 import Certificate  # Its library is optional.

NEEDS_EXTRA = "TLS needs the extra: consumer-group-coordinator[tls]"


@dataclass(frozen=True, slots=True)
class Material:
    """Checked content of the files.

    not_after_s: earliest expiry in the chain, in seconds since the epoch.
    hosts: names and addresses of the certificate.
    """

    key: bytes
    chain: bytes
    client_ca: bytes | None
    not_after_s: float
    hosts: tuple[str, ...]

    def is_for(self, host: str) -> bool:
        """True if the certificate is valid for a host name or address."""
        host = host.strip("[]").lower()
        anything_in = "*." + host.partition(".")[2]
        return any(name.lower() in (host, anything_in) for name in self.hosts)


class ServerTls:
    """TLS of one node, for gRPC, Kafka and HTTP.

    Args:
        client_ca_file: authorities of client certificates, which are then required; empty: clients
            need none.
    Raises:
        CannotSecure: a file is not usable; the message says which, and why.
    """

    def __init__(self, cert_file: str, key_file: str, client_ca_file: str = "") -> None:
        self._cert_file, self._key_file, self._client_ca_file = cert_file, key_file, client_ca_file
        self._handed_out: Material | None = None
        self._load()

    @property
    def is_mutual(self) -> bool:
        """True if clients must show a certificate."""
        return bool(self._client_ca_file)

    def reload(self) -> None:
        """Reload the files; if one is not usable, the old content stays in force.

        Raises:
            CannotSecure: a file is not usable.
        """
        self._load()

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials for one gRPC server, whose new connections follow `reload`."""
        self._handed_out = self.material
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self.material),
            self._changed,  # type: ignore[arg-type]  # The stubs forget that it may answer None.
            self.is_mutual,
        )

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificate for new connections; None if unchanged. gRPC's threads call it."""
        if self._handed_out is self.material:
            return None
        self._handed_out = self.material
        return _configuration(self._handed_out)

    def _load(self) -> None:
        material = _checked(
            self._cert_file, self._key_file, self._client_ca_file, now_s=time.time()
        )
        context = self._context_for(material, ssl.CERT_REQUIRED)
        # A page may ask for a token instead; gRPC has no such choice, and Kafka does as gRPC.
        self.page_context = self._context_for(material, ssl.CERT_OPTIONAL)
        self.context, self.material = context, material

    def _context_for(self, material: Material, clients: ssl.VerifyMode) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._cert_file, self._key_file)
            if material.client_ca is not None:
                context.load_verify_locations(cadata=material.client_ca.decode())
                context.verify_mode = clients
        except (OSError, ValueError) as error:
            raise CannotSecure(f"{self._cert_file}: {error}") from error
        return context


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.chain)], material.client_ca
    )


def _checked(cert_file: str, key_file: str, client_ca_file: str, *, now_s: float) -> Material:
    try:
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise CannotSecure(NEEDS_EXTRA) from None

    def certificates(path: str) -> tuple[bytes, list[x509.Certificate]]:
        content = _read(path)
        try:
            return content, x509.load_pem_x509_certificates(content)
        except ValueError:
            raise CannotSecure(f"{path}: no PEM certificate that can be read") from None

    chain, certificate_chain = certificates(cert_file)
    key = _read(key_file)
    try:
        private = load_pem_private_key(key, password=None)
        belongs = private.public_key() == certificate_chain[0].public_key()
    except TypeError:
        raise CannotSecure(f"{key_file}: the key has a password; give one without") from None
    except (ValueError, UnsupportedAlgorithm):
        raise CannotSecure(f"{key_file}: no PEM key that can be read") from None
    if not belongs:
        raise CannotSecure(f"{key_file}: the key does not belong to the certificate in {cert_file}")
    for certificate in certificate_chain:
        if certificate.not_valid_after_utc.timestamp() <= now_s:
            when = certificate.not_valid_after_utc
            raise CannotSecure(f"{cert_file}: the certificate expired at {when:%Y-%m-%d %H:%M} UTC")
        if certificate.not_valid_before_utc.timestamp() > now_s:
            when = certificate.not_valid_before_utc
            raise CannotSecure(f"{cert_file}: the certificate begins at {when:%Y-%m-%d %H:%M} UTC")
    client_ca = None
    if client_ca_file:
        client_ca, authorities = certificates(client_ca_file)
        if all(authority.not_valid_after_utc.timestamp() <= now_s for authority in authorities):
            raise CannotSecure(f"{client_ca_file}: the authority's certificate has expired")
    not_after_s = min(c.not_valid_after_utc.timestamp() for c in certificate_chain)
    return Material(key, chain, client_ca, not_after_s, _hosts(certificate_chain[0]))


def _hosts(certificate: Certificate) -> tuple[str, ...]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CannotSecure(f"cannot read {path}: {error.strerror}") from error
