"""Every setting of the service: its meaning, unit, default and bounds.

A setting is a field with its meaning in the string below it. `configuration.py` says where values
come from.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass

from coordinator.core.config import GroupConfig

NODE_PORTS = 10
"""How many ports lie between the nodes of one machine."""


class InvalidSetting(ValueError):
    """A setting that does not exist, or a value it cannot have. The message says which."""


@dataclass(frozen=True, slots=True)
class SharedStore:
    """`kind` is etcd or zookeeper; `name` is what everything of this cluster begins with there."""

    kind: str
    endpoints: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(GroupConfig):
    """What a node can be told. The rules of groups are in `GroupConfig`."""

    listen: str = "127.0.0.1:7400"
    """Host and port of the gRPC server; port 0 lets the system choose."""

    metrics_listen: str = "127.0.0.1:7401"
    """Host and port of /metrics; empty: no metrics are served."""

    console_listen: str = "127.0.0.1:7402"
    """Host and port of the console, a page that shows groups and their rebalances and changes
    nothing; empty: there is none."""

    metrics_groups: str = ""
    """Groups with series of their own in /metrics (members, offsets, lag): ids with commas between,
    in which * stands for anything; empty: none."""

    advertised_host: str = ""
    """Host that FindCoordinator names; empty: the one of `listen`."""

    advertised_port: int = 0
    """Port that FindCoordinator names; 0: the one bound."""

    tls_cert_file: str = ""
    """PEM file of this node's certificate, with those between it and its authority; then
    everything is served over TLS. Read again when it changes; empty: plain text."""

    tls_key_file: str = ""
    """PEM file of the key to tls_cert_file."""

    tls_client_ca_file: str = ""
    """PEM file of the authorities of clients: calls need a certificate of theirs; empty: none."""

    tls_peer_ca_file: str = ""
    """PEM file of the authorities of other nodes' certificates; empty: tls_client_ca_file, or else
    the system's."""

    auth_tokens_file: str = ""
    """File of static bearer tokens, hashed; `coordinator token new` makes its lines."""

    auth_jwks: str = ""
    """File or URL of the keys (JWKS) that JSON web tokens are signed with; empty: none."""

    auth_jwt_audience: str = ""
    """The audience that a JSON web token must be for. Needed with auth_jwks."""

    auth_jwt_issuer: str = ""
    """The issuer that a JSON web token must be from; empty: any whose key is known."""

    auth_jwt_claim: str = "sub"
    """The claim of a JSON web token that names its principal."""

    auth_rules_file: str = ""
    """TOML file of rules: who may do what with which groups, and nothing else; empty: whoever is
    recognised may do everything."""

    auth_peer_token_file: str = ""
    """File with the token that this node shows to others, where certificates do not say it."""

    insecure: bool = False
    """Serve plain text beyond this machine, and metrics and console to anyone: only where nobody
    else can reach the network."""

    node_id: int = 0
    """This node's number. Nodes that share a store need different ones; 0: chosen at random."""

    nodes: int = 1
    """Processes on this machine, each a node; the next listens 10 ports further. With sqlite each
    has a fixed share of the shards, in a file of its own; with a shared store (which counts
    their node_id up from the one given) they are nodes like any other."""

    share: str = ""
    """K/N: lead only the K-th of N fixed shares of the shards. Given to each of several nodes."""

    store: str = "sqlite"
    """Where groups are durable: sqlite, in data_dir; memory, which ends with the process; or a
    store shared by several nodes, etcd://HOST:PORT,HOST:PORT/NAME or zookeeper://…"""

    store_session_timeout_ms: int = 2_000
    """How long the nodes of a shared store wait for a silent one before they take over. ZooKeeper
    grants no less than two of its ticks, 4 s as it is delivered; the node says so at start."""

    store_ca_file: str = ""
    """PEM file of the authority that signed the shared store's certificates; empty: no TLS."""

    store_cert_file: str = ""
    """PEM file of this node's certificate for the shared store; empty: none."""

    store_key_file: str = ""
    """PEM file of the key to store_cert_file."""

    store_user: str = ""
    """User at the shared store; empty: no login."""

    store_password_file: str = ""
    """File with that user's password."""

    store_quota_mib: int = 2_048
    """The quota of etcd, which it does not tell: no appends beyond 60 % of it."""

    replicas: int = 2
    """Nodes that have a shard in memory, its leader among them: those who follow take over without
    a load. Only with a shared store."""

    acks: str = "store"
    """When a write counts as done: store, when the shared store has it; all, when the replicas in
    sync have it too."""

    min_insync_replicas: int = 1
    """With acks all: so many replicas, the leader among them, must be in sync for a write."""

    replica_lag_time_max_ms: int = 10_000
    """A replica that has not been at the end of its leader's log for so long is not in sync; one
    whose session with the store has ended is not either, at once."""

    otel_endpoint: str = ""
    """http://HOST:PORT (or https) of an OpenTelemetry collector that takes OTLP over gRPC; empty:
    no traces. Heartbeats are not traced."""

    otel_sample_percent: int = 1
    """Of calls whose client says nothing of a trace, so many in a hundred are traced; where it
    does, it decides."""

    record_dir: str = ""
    """Folder for recordings of everything that goes into each shard, for `coordinator replay`;
    empty: nothing is recorded. A line an input, heartbeats too: for the hunt, not for every day."""

    data_dir: str = "coordinator-data"
    """Folder of the sqlite store. One process at a time serves from it."""

    shards: int = 16
    """Shards the groups are divided into. Fixed when a store is made."""

    max_message_bytes: int = 4_194_304
    """Largest request. Larger ones get RESOURCE_EXHAUSTED."""

    max_member_metadata_bytes: int = 1_048_576
    """Largest metadata of all protocols of one member, which its leader is sent."""

    max_assignment_bytes: int = 1_048_576
    """Largest assignment of one member."""

    max_groups: int = 0
    """Groups of this node; who would make another is refused. 0: no limit."""

    max_members_per_host: int = 0
    """Members that may come from one client address, in all groups of this node; 0: no limit."""

    max_parked_calls: int = 100_000
    """Calls of this node that may wait for their answers; JoinGroup and SyncGroup are refused from
    there on."""

    max_streams: int = 20_000
    """Streams (HeartbeatStream, WatchRebalances) that this node keeps open."""

    max_requests_per_second: int = 0
    """Calls a second of one caller, by name where callers say who they are, else by address. Those
    beyond are held back for up to a second, and then refused; 0: no limit."""

    max_memory_mib: int = 0
    """Memory of the process from which on nobody new is let in: no new members, groups or streams;
    those that are there go on. 0: no limit."""

    max_metadata_bytes: int = 16_384
    """Largest metadata (headers) of a call. Calls with more get RESOURCE_EXHAUSTED."""

    max_calls_per_connection: int = 20_000
    """Calls that one connection may have under way, parked ones among them; more wait at the
    client. All members of a process that share a connection must fit."""

    max_pending_requests: int = 10_000
    """Calls that gRPC may hold before they are taken up, in each of its queues: what a core answers
    in a heartbeat interval, and a burst of joins. Those beyond get CANCELLED; repeat them. As many
    joins, syncs, commits and questions may then wait for their turn."""

    max_partitions_per_call: int = 10_000
    """Topics, and partitions of all of them, that one call may name to commit, fetch or delete
    offsets or to report log ends. One step of a shard takes them all: others wait that long."""

    max_members_per_call: int = 20_000
    """Members that one call may name: heartbeats of a batch, assignments of a group, members that
    leave."""

    max_groups_per_call: int = 1_000
    """Groups that one call may describe, delete or watch."""

    drain_timeout_ms: int = 10_000
    """How long a stop waits for the last answers to leave."""

    log_format: str = "auto"
    """json, console, or auto: console on a terminal."""

    log_level: str = "info"
    """debug, info, warning or error."""

    def __post_init__(self) -> None:
        for name in (*BOUNDS, *CHOICES):
            check_bounds(name, getattr(self, name))
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise InvalidSetting(
                "group_min_session_timeout_ms is larger than group_max_session_timeout_ms"
            )
        if self.store not in ("sqlite", "memory"):
            self.shared_store  # noqa: B018  # Raises if it cannot be read.
        for name in ("listen", "metrics_listen", "console_listen"):
            _address(name, getattr(self, name))
        self.fixed_share  # noqa: B018  # Raises if it cannot be read.

    @property
    def shared_store(self) -> SharedStore | None:
        """The store shared with other nodes, taken apart; None if there is none."""
        if self.store in ("sqlite", "memory"):
            return None
        found = re.fullmatch(r"(etcd|zookeeper)://([^/]+)/([\w.-]+)", self.store)
        if found is None:
            raise InvalidSetting(
                f"store is {self.store!r}; it may be sqlite, memory, "
                "etcd://HOST:PORT,HOST:PORT/NAME or zookeeper://HOST:PORT,HOST:PORT/NAME"
            )
        kind, endpoints, name = found.groups()
        return SharedStore(kind, tuple(endpoints.split(",")), name)

    @property
    def fixed_share(self) -> tuple[int, int]:
        """(K, N) of `share`; (1, 1) if this node may lead all shards."""
        found = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", self.share or "1/1")
        if found is None or int(found[1]) > int(found[2]):
            raise InvalidSetting(f"share is {self.share!r}; give K/N, K from 1 to N")
        return int(found[1]), int(found[2])

    @property
    def is_guarded(self) -> bool:
        """True if callers must say who they are."""
        return bool(self.tls_client_ca_file or self.auth_tokens_file or self.auth_jwks)

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port of the gRPC server."""
        address = _address("listen", self.listen)
        assert address is not None
        return address

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of /metrics; None if it is off."""
        return _address("metrics_listen", self.metrics_listen)

    @property
    def console_address(self) -> tuple[str, int] | None:
        """Host and port of the console; None if it is off."""
        return _address("console_listen", self.console_listen)


_MAX = 2**31 - 1
BOUNDS: dict[str, tuple[int, int]] = {
    "group_min_session_timeout_ms": (1, _MAX),
    "group_max_session_timeout_ms": (1, _MAX),
    "group_initial_rebalance_delay_ms": (0, _MAX),
    "group_max_size": (1, _MAX),
    "offset_metadata_max_bytes": (0, _MAX),
    "offset_manifest_max_bytes": (0, 1_048_576),
    "offsets_retention_minutes": (1, _MAX),
    "offsets_retention_check_interval_ms": (1, _MAX),
    "offset_commit_timeout_ms": (1, _MAX),
    "advertised_port": (0, 65_535),
    "node_id": (0, _MAX),
    "shards": (1, 1024),
    "store_session_timeout_ms": (400, 600_000),
    "nodes": (1, 64),
    "replicas": (1, 16),
    "min_insync_replicas": (1, 16),
    "replica_lag_time_max_ms": (100, 600_000),
    "store_quota_mib": (1, 1_048_576),
    "otel_sample_percent": (0, 100),
    "max_message_bytes": (1024, _MAX),
    "max_member_metadata_bytes": (1024, _MAX),
    "max_assignment_bytes": (1024, _MAX),
    "max_groups": (0, _MAX),
    "max_members_per_host": (0, _MAX),
    "max_parked_calls": (1, _MAX),
    "max_streams": (1, _MAX),
    "max_requests_per_second": (0, 1_000_000),
    "max_memory_mib": (0, _MAX),
    "max_metadata_bytes": (1024, 1_048_576),
    "max_calls_per_connection": (1, _MAX),
    "max_partitions_per_call": (1, 1_000_000),
    "max_members_per_call": (1, 1_000_000),
    "max_groups_per_call": (1, 1_000_000),
    "max_pending_requests": (1, _MAX),
    "drain_timeout_ms": (0, _MAX),
}
"""Lowest and highest value of each number."""
CHOICES = {
    "acks": ("store", "all"),
    "log_format": ("auto", "json", "console"),
    "log_level": ("debug", "info", "warning", "error"),
}
"""What may be chosen."""


def check_bounds(name: str, value: object) -> None:
    """Refuse a value that a setting cannot have, whatever the others are.

    Raises:
        InvalidSetting: it is out of bounds, or none of the choices.
    """
    low, high = BOUNDS.get(name, (None, None))
    if low is not None and high is not None and isinstance(value, int):
        if not low <= value <= high:
            raise InvalidSetting(f"{name} is {value}; it may be {low} to {high}")
    choices = CHOICES.get(name)
    if choices is not None and value not in choices:
        raise InvalidSetting(f"{name} is {value!r}; it may be {', '.join(choices)}")


def _address(name: str, value: str) -> tuple[str, int] | None:
    if not value and name != "listen":
        return None
    host, _, port = value.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise InvalidSetting(f"{name} is {value!r}; give HOST:PORT")
    return host, int(port)


def meanings() -> dict[str, str]:
    """What each setting means: the string below its field."""
    found: dict[str, str] = {}
    for kind in (GroupConfig, Settings):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, note in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(note, ast.Expr)
                and isinstance(note.value, ast.Constant)
            ):
                found[field.target.id] = " ".join(str(note.value.value).split())
    return found
