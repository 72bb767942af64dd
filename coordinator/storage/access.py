"""Access to a shared store of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """Addresses of the servers, and the credentials to log in there.

    Without `ca_file` the connection is plain text. `cert_file` and `key_file` are the client's
    own, for stores that ask for them. With a user, nodes created in ZooKeeper are readable and
    writable for that user alone (ACL scheme digest).
    """

    endpoints: tuple[str, ...]
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str = ""
    password: str = ""
