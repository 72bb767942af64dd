"""Every setting but those of groups (`core/config.py`), in sections by who uses them.

A line says name, type, default, what is allowed (None: whatever has the type), then the meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.setting import Bounds, Section, setting
from coordinator.settings.forms import (
    SharedStore,
    address,
    address_or_none,
    fixed_share,
    shared_store,
)

# fmt: off
NODE_PORTS = 10
"""How many ports lie between the nodes of one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingConfig(Section):
    """Addresses of the gRPC server, of its pages, and of the node as others are told it."""

    listen: str = setting("127.0.0.1:7400", address,
        "Host and port of the gRPC server; port 0 lets the system choose.")
    metrics_listen: str = setting("127.0.0.1:7401", address_or_none,
        "Host and port of /metrics; empty: no metrics are served.")
    console_listen: str = setting("127.0.0.1:7402", address_or_none,
        "Host and port of the console, a read-only page of groups and their rebalances; empty: "
        "there is none.")
    advertised_host: str = setting("", None,
        "Host that FindCoordinator names; empty: the one of listen.")
    advertised_port: int = setting(0, Bounds(0, 65_535),
        "Port that FindCoordinator names; 0: the one bound.")
    drain_timeout_ms: int = setting(10_000, Bounds(0, unit="ms"),
        "How long a stopping node waits for the last answers to leave.")

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port of the gRPC server."""
        return address(self.listen)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of /metrics; None if it is off."""
        return address_or_none(self.metrics_listen)

    @property
    def console_address(self) -> tuple[str, int] | None:
        """Host and port of the console; None if it is off."""
        return address_or_none(self.console_listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig(Section):
    """Files and names of certificates, tokens and rules. The files are read elsewhere."""

    tls_cert_file: str = setting("", None,
        "PEM file of this node's certificate and its intermediates; with it everything is served "
        "over TLS. Read again when it changes; empty: plain text.")
    tls_key_file: str = setting("", None, "PEM file of the key to tls_cert_file.")
    tls_client_ca_file: str = setting("", None,
        "PEM file of the authorities of clients: calls need a certificate of theirs; empty: none.")
    tls_peer_ca_file: str = setting("", None,
        "PEM file of the authorities of other nodes' certificates; empty: tls_client_ca_file, or "
        "else the system's.")
    auth_tokens_file: str = setting("", None,
        "File of static bearer tokens, hashed; `coordinator token new` makes its lines.")
    auth_jwks: str = setting("", None,
        "File or URL of the keys (JWKS) that JSON web tokens are signed with; empty: none.")
    auth_jwt_audience: str = setting("", None,
        "The audience that a JSON web token must be for. Needed with auth_jwks.")
    auth_jwt_issuer: str = setting("", None,
        "The issuer that a JSON web token must be from; empty: any whose key is known.")
    auth_jwt_claim: str = setting("sub", None,
        "The claim of a JSON web token that names its principal.")
    auth_rules_file: str = setting("", None,
        "TOML file of rules: who may do what with which groups, and nothing else; empty: every "
        "authenticated caller may do everything.")
    auth_peer_token_file: str = setting("", None,
        "File with the token that this node shows to others, where certificates do not say it.")
    insecure: bool = setting(False, None,
        "Serve plain text beyond this machine, and metrics and console to anyone: only where "
        "nobody else can reach the network.")

    @property
    def is_guarded(self) -> bool:
        """True if callers must say who they are."""
        return bool(self.tls_client_ca_file or self.auth_tokens_file or self.auth_jwks)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig(Section):
    """The store, the shards in it, and the way to a store that nodes share."""

    store: str = setting("sqlite", shared_store,
        "Where groups are durable: sqlite, in data_dir; memory, which ends with the process; or a "
        "store shared by several nodes, etcd://HOST:PORT,HOST:PORT/NAME or zookeeper://…")
    data_dir: str = setting("coordinator-data", None,
        "Folder of the sqlite store. One process at a time serves from it.")
    shards: int = setting(16, Bounds(1, 1_024, unit="shards"),
        "Shards the groups are divided into. Fixed when a store is made.")
    share: str = setting("", fixed_share,
        "K/N: lead only the K-th of N fixed shares of the shards. Given to each of several nodes.")
    store_session_timeout_ms: int = setting(2_000, Bounds(400, 600_000, unit="ms"),
        "How long the nodes of a shared store wait for a silent one before they take over. "
        "ZooKeeper grants no less than two of its ticks, 4 s by default; the node logs the time "
        "granted at start.")
    store_ca_file: str = setting("", None,
        "PEM file of the authority that signed the shared store's certificates; empty: no TLS.")
    store_cert_file: str = setting("", None,
        "PEM file of this node's certificate for the shared store; empty: none.")
    store_key_file: str = setting("", None, "PEM file of the key to store_cert_file.")
    store_user: str = setting("", None, "User at the shared store; empty: no login.")
    store_password_file: str = setting("", None, "File with that user's password.")
    store_quota_mib: int = setting(2_048, Bounds(1, 1_048_576, unit="MiB"),
        "The quota of etcd, which etcd does not report: appends are refused beyond 60 % of it.")

    @property
    def shared_store(self) -> SharedStore | None:
        """The store shared with other nodes, taken apart; None if there is none."""
        return shared_store(self.store)

    @property
    def fixed_share(self) -> tuple[int, int]:
        """(K, N) of `share`; (1, 1) if this node may lead all shards."""
        return fixed_share(self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(Section):
    """This node among the others, and the replicas of its shards."""

    node_id: int = setting(0, Bounds(0),
        "This node's number. Nodes that share a store need different ones; 0: chosen at random.")
    nodes: int = setting(1, Bounds(1, 64, unit="nodes"),
        "Processes on this machine, each a node; each listens 10 ports above the one before. With "
        "sqlite each has a fixed share of the shards, in a file of its own; with a shared store "
        "they are nodes like any other, and their node_ids count up from the one given.")
    replicas: int = setting(2, Bounds(1, 16, unit="nodes"),
        "Nodes that have a shard in memory, its leader among them; a follower takes over without "
        "a load. Only with a shared store.")
    acks: str = setting("store", ("store", "all"),
        "When a write counts as done: store, when the shared store has it; all, when the replicas "
        "in sync have it too.")
    min_insync_replicas: int = setting(1, Bounds(1, 16, unit="replicas"),
        "With acks all: replicas, the leader among them, that must be in sync for a write.")
    replica_lag_time_max_ms: int = setting(10_000, Bounds(100, 600_000, unit="ms"),
        "A replica that has not been at the end of its leader's log for this long is not in sync; "
        "one whose session with the store has ended is out of sync at once.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig(Section):
    """The most of everything that a node takes on. Beyond a limit calls wait or are refused."""

    max_message_bytes: int = setting(4_194_304, Bounds(1_024, unit="bytes"),
        "Largest request. Larger ones get RESOURCE_EXHAUSTED.")
    max_metadata_bytes: int = setting(16_384, Bounds(1_024, 1_048_576, unit="bytes"),
        "Largest metadata (headers) of a call. Calls with more get RESOURCE_EXHAUSTED.")
    max_member_metadata_bytes: int = setting(1_048_576, Bounds(1_024, unit="bytes"),
        "Largest metadata of one member, of all its protocols together; its leader is sent it.")
    max_assignment_bytes: int = setting(1_048_576, Bounds(1_024, unit="bytes"),
        "Largest assignment of one member.")
    max_groups: int = setting(0, Bounds(0, unit="groups"),
        "Groups of this node; more are refused. 0: no limit.")
    max_members_per_host: int = setting(0, Bounds(0, unit="members"),
        "Members that may come from one client address, in all groups of this node; 0: no limit.")
    max_parked_calls: int = setting(100_000, Bounds(1, unit="calls"),
        "Calls of this node that may wait for their answers; further JoinGroup and SyncGroup "
        "calls are refused.")
    max_streams: int = setting(20_000, Bounds(1, unit="streams"),
        "Streams (HeartbeatStream, WatchRebalances) that this node keeps open.")
    max_calls_per_connection: int = setting(20_000, Bounds(1, unit="calls"),
        "Calls that one connection may have under way, parked ones among them; more wait at the "
        "client. All members of a process that share a connection must fit.")
    max_pending_requests: int = setting(10_000, Bounds(1, unit="calls"),
        "Calls that each of gRPC's queues may hold before the node takes them up: what a core "
        "answers in a heartbeat interval, and a burst of joins. Further calls get CANCELLED and "
        "may be repeated. As many joins, syncs, commits and queries may then wait for their turn.")
    max_requests_per_second: int = setting(0, Bounds(0, 1_000_000, unit="calls per second"),
        "Calls of one caller, by name where callers say who they are, else by address. Further "
        "calls are held back for up to a second, and then refused; 0: no limit.")
    max_memory_mib: int = setting(0, Bounds(0, unit="MiB"),
        "Resident memory above which new members, groups and streams are refused; existing ones "
        "go on. 0: no limit.")
    max_partitions_per_call: int = setting(10_000, Bounds(1, 1_000_000, unit="partitions"),
        "Topics, and partitions of all of them, that one call may name to commit, fetch or delete "
        "offsets or to report log ends. A shard handles them in one step, and other calls wait "
        "meanwhile.")
    max_members_per_call: int = setting(20_000, Bounds(1, 1_000_000, unit="members"),
        "Members that one call may name: heartbeats of a batch, assignments of a group, members "
        "that leave.")
    max_groups_per_call: int = setting(1_000, Bounds(1, 1_000_000, unit="groups"),
        "Groups that one call may describe, delete or watch.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveConfig(Section):
    """What a node tells about itself, and where to."""

    log_format: str = setting("auto", ("auto", "json", "console"),
        "auto: console on a terminal, else json.")
    log_level: str = setting("info", ("debug", "info", "warning", "error"),
        "Lowest level that is logged.")
    metrics_groups: str = setting("", None,
        "Groups with series of their own in /metrics (members, offsets, lag): ids with commas "
        "between, in which * stands for anything; empty: none.")
    otel_endpoint: str = setting("", None,
        "http://HOST:PORT (or https) of an OpenTelemetry collector that takes OTLP over gRPC; "
        "empty: no traces. Heartbeats are not traced.")
    otel_sample_percent: int = setting(1, Bounds(0, 100, unit="percent"),
        "Share of calls that are traced if the client sends no trace context; if it does, the "
        "client decides.")
    record_dir: str = setting("", None,
        "Folder for recordings of all inputs of each shard, for `coordinator replay`; empty: "
        "nothing is recorded. Every input, heartbeats too, is a line: for debugging, not for "
        "every day.")
