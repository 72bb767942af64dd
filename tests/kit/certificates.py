"""Authorities and certificates for tests, as files, which can be exchanged in place."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

HOSTS = ("127.0.0.1", "localhost")


class Authority:
    """Signs; its certificate is in `file`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.file = str(folder / f"{name}.pem")
        Path(self.file).write_bytes(self._ca.cert_pem.bytes())

    def issue(
        self, name: str, *hosts: str, common_name: str | None = None, days: float = 30
    ) -> tuple[str, str]:
        """Paths of a new certificate and its key, put in the place of those there are.

        Args:
            days: from now on; below 0: it has expired.
        """
        now = datetime.now(UTC)
        made = self._ca.issue_cert(
            *(hosts or HOSTS),
            common_name=common_name or name,
            not_before=now - timedelta(days=40),
            not_after=now + timedelta(days=days),
        )
        chain = b"".join(pem.bytes() for pem in made.cert_chain_pems)
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        for path, content in ((key, made.private_key_pem.bytes()), (cert, chain)):
            replace(path, content)
        return str(cert), str(key)


def replace(path: Path | str, content: bytes | str) -> None:
    """Replace a file atomically, as an operator does: readers see the old or the new content."""
    data = content.encode() if isinstance(content, str) else content
    new = Path(f"{path}.new")
    new.write_bytes(data)
    os.replace(new, path)


def content(path: str) -> bytes:
    """Content of a file."""
    return Path(path).read_bytes()
