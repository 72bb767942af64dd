"""All settings except those of groups (`core/config.py`), one section per part that uses it.

A field has name, type, default, allowed values (None: any of its type), and meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core import limits
from coordinator.core.setting import InvalidSetting, Section, SettingBounds, setting
from coordinator.settings.parsers import (
    SharedStore,
    address,
    address_or_none,
    fixed_share,
    is_wildcard,
    shared_store,
    without_password,
)

# fmt: off
NODE_PORTS = 10
"""Distance between the ports of two nodes of one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingConfig(Section):
    """Addresses of the gRPC server and the pages, and the address that the node advertises."""

    listen: str = setting("127.0.0.1:7400", address,
        "Host and port of the gRPC server; port 0: chosen by the system.")
    metrics_listen: str = setting("127.0.0.1:7401", address_or_none,
        "Host and port of /metrics; empty: disabled.")
    console_listen: str = setting("127.0.0.1:7402", address_or_none,
        "Host and port of the console, a read-only page of groups and their rebalances; empty: "
        "disabled.")
    advertised_host: str = setting("", None,
        "Host that FindCoordinator returns for this node; empty: the host of listen.")
    advertised_port: int = setting(0, SettingBounds(0, 65_535),
        "Port that FindCoordinator returns for this node; 0: the port of listen.")
    drain_timeout_ms: int = setting(10_000, SettingBounds(0, unit="ms"),
        "Time that a stopping node has to send its last responses.")

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
class KafkaConfig(Section):
    """The listener for Kafka's clients: addresses, and limits of its connections."""

    kafka_listen: str = setting("", address_or_none,
        "Host and port at which Kafka's own clients are served; port 0: chosen by the system; "
        "empty: disabled.")
    kafka_advertise: str = setting("", address_or_none,
        "Host and port that Kafka's clients are told for this node; empty: those of kafka_listen. "
        "Needed if kafka_listen is a wildcard address.")
    kafka_max_frame_bytes: int = setting(4_194_304, SettingBounds(1_024, unit="bytes"),
        "Largest request of a Kafka client. Larger ones close the connection. Unfinished requests "
        "of all connections together may be 64 times as large.")
    kafka_max_connections: int = setting(20_000, SettingBounds(1, unit="connections"),
        "Most connections of Kafka clients; further ones are refused.")
    kafka_max_connections_per_address: int = setting(0, SettingBounds(0, unit="connections"),
        "Most connections of Kafka clients from one address; 0: no limit.")
    kafka_request_timeout_ms: int = setting(30_000, SettingBounds(100, unit="ms"),
        "Time in which a Kafka client has to finish a request that it has begun to send, to read "
        "its answers, and to authenticate; then its connection is closed.")
    kafka_idle_timeout_ms: int = setting(600_000, SettingBounds(1_000, unit="ms"),
        "Connections of Kafka clients on which nothing has come for once to twice this time are "
        "closed.")

    def __post_init__(self) -> None:
        Section.__post_init__(self)  # A slotted dataclass has no `super()`: it is made twice.
        kafka_address = self.kafka_advertised_address
        if kafka_address is not None and is_wildcard(kafka_address[0]):
            raise InvalidSetting(
                f"Kafka's clients cannot connect to {kafka_address[0]}: give kafka_advertise the "
                "HOST:PORT at which they reach this node"
            )

    @property
    def kafka_address(self) -> tuple[str, int] | None:
        """Host and port for Kafka's clients; None if there is no listener."""
        return address_or_none(self.kafka_listen)

    @property
    def kafka_advertised_address(self) -> tuple[str, int] | None:
        """Host and port that clients are told; None if there is no listener. Port 0: the one that
        is listened at."""
        if self.kafka_address is None:
            return None
        return address_or_none(self.kafka_advertise) or self.kafka_address


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig(Section):
    """Files and names of certificates, tokens and rules. The files are read elsewhere."""

    tls_cert_file: str = setting("", None,
        "PEM file of this node's certificate and its intermediates; gRPC, metrics and console are "
        "then served over TLS. Reloaded when it changes; empty: plain text.")
    tls_key_file: str = setting("", None, "PEM file of the key to tls_cert_file.")
    tls_client_ca_file: str = setting("", None,
        "PEM file of the certificate authorities of clients (mutual TLS); empty: clients need no "
        "certificate.")
    tls_peer_ca_file: str = setting("", None,
        "PEM file of the certificate authorities of other nodes; empty: tls_client_ca_file, or "
        "else the system's.")
    auth_tokens_file: str = setting("", None,
        "File of hashed static bearer tokens; `coordinator token new` prints its lines.")
    auth_jwks: str = setting("", None,
        "File or URL of the public keys (JWKS) that verify JSON web tokens; empty: no such tokens.")
    auth_jwt_audience: str = setting("", None,
        "Required audience of JSON web tokens. Needed with auth_jwks.")
    auth_jwt_issuer: str = setting("", None,
        "Required issuer of JSON web tokens; empty: any whose key is in auth_jwks.")
    auth_jwt_claim: str = setting("sub", None,
        "Claim of a JSON web token that holds its principal.")
    auth_rules_file: str = setting("", None,
        "TOML file of authorisation rules; what no rule allows is denied. Empty: every "
        "authenticated caller may do everything.")
    auth_peer_token_file: str = setting("", None,
        "File with the bearer token that this node sends to other nodes; empty: none.")
    insecure: bool = setting(False, None,
        "Allow plain text beyond the loopback, and metrics and console without a login. Only for "
        "networks that nobody else can reach.")

    @property
    def is_guarded(self) -> bool:
        """True if callers must authenticate."""
        return bool(self.tls_client_ca_file or self.auth_tokens_file or self.auth_jwks)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig(Section):
    """The store, its shards, and the credentials for a shared store."""

    store: str = setting("sqlite", shared_store,
        "Store of the log: sqlite, in data_dir, or sqlite:///FOLDER (four slashes: its full path); "
        "memory, lost when the process ends; or shared by several nodes, "
        "etcd://HOST:PORT,HOST:PORT/NAME, zookeeper://… or "
        "postgresql://HOST:PORT/DATABASE?cluster=NAME.")
    data_dir: str = setting("coordinator-data", None,
        "Folder of the sqlite store. One process at a time serves from it.")
    shards: int = setting(16, SettingBounds(1, limits.SHARDS.items, unit="shards"),
        "Number of shards that groups are divided into. Fixed when the store is created.")
    share: str = setting("", fixed_share,
        "K/N: lead only the K-th of N fixed shares of the shards; each of N nodes needs another "
        "K. Empty: all shards.")
    store_session_timeout_ms: int = setting(2_000, SettingBounds(400, 600_000, unit="ms"),
        "Session timeout of nodes at the shared store: how long after a failure others take over. "
        "ZooKeeper grants no less than two of its ticks, 4 s by default; the node logs the time "
        "granted at start.")
    store_ca_file: str = setting("", None,
        "PEM file of the certificate authority of the shared store; empty: no TLS.")
    store_cert_file: str = setting("", None,
        "PEM file of this node's client certificate at the shared store; empty: none.")
    store_key_file: str = setting("", None, "PEM file of the key to store_cert_file.")
    store_user: str = setting("", None, "User name at the shared store; empty: no login.")
    store_password_file: str = setting("", None, "File with the password of store_user.")
    store_quota_mib: int = setting(2_048, SettingBounds(1, 1_048_576, unit="MiB"),
        "Storage quota of etcd, which etcd does not report; appends are refused beyond 60 % of it.")

    @property
    def shared_store(self) -> SharedStore | None:
        """The shared store; None for sqlite and memory."""
        return shared_store(self.store)

    @property
    def shown_store(self) -> str:
        """`store` without the password that a URL may have."""
        return without_password(self.store)

    @property
    def fixed_share(self) -> tuple[int, int]:
        """(K, N) of `share`; (1, 1) if this node may lead all shards."""
        return fixed_share(self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(Section):
    """This node's place in its cluster, and the replication of shards."""

    node_id: int = setting(0, SettingBounds(0),
        "Node id, unique among the nodes of a shared store; 0: chosen at random.")
    nodes: int = setting(1, SettingBounds(1, 64, unit="nodes"),
        "Number of node processes to run on this machine; their ports are 10 apart. With sqlite "
        "each has a fixed share of the shards in a file of its own; with a shared store they are "
        "ordinary nodes, and their node_ids count up from node_id.")
    replicas: int = setting(2, SettingBounds(1, 16, unit="nodes"),
        "Nodes that hold each shard in memory, including its leader; a follower takes over without "
        "loading it. Only with a shared store.")
    acks: str = setting("store", ("store", "all"),
        "Acknowledgement of writes: store, when the shared store has it; all, when all in-sync "
        "replicas have it too.")
    min_insync_replicas: int = setting(1, SettingBounds(1, 16, unit="replicas"),
        "Replicas, including the leader, that must be in sync for a write with acks=all.")
    replica_lag_time_max_ms: int = setting(10_000, SettingBounds(100, 600_000, unit="ms"),
        "A replica that has not caught up with its leader's log end for this long is out of sync; "
        "one whose session with the store has ended is so at once.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig(Section):
    """Limits of a node. Beyond a limit calls wait or are refused."""

    max_message_bytes: int = setting(2_097_152, SettingBounds(1_024, unit="bytes"),
        "Largest request. Larger ones get RESOURCE_EXHAUSTED. A request that is made to be "
        "expensive blocks the event loop for 35 ms per MiB.")
    max_metadata_bytes: int = setting(16_384, SettingBounds(1_024, 1_048_576, unit="bytes"),
        "Largest metadata (headers) of a call. Calls with more get RESOURCE_EXHAUSTED.")
    max_member_metadata_bytes: int = setting(1_048_576, SettingBounds(1_024, unit="bytes"),
        "Largest metadata of one member, over all its protocols; the group's leader receives it. "
        "Of a session member: its topics and labels.")
    max_assignment_bytes: int = setting(1_048_576, SettingBounds(1_024, unit="bytes"),
        "Largest assignment of one member.")
    max_groups: int = setting(0, SettingBounds(0, unit="groups"),
        "Most groups of this node; further ones are refused. 0: no limit.")
    max_members_per_host: int = setting(0, SettingBounds(0, unit="members"),
        "Most members from one client address, over all groups of this node; 0: no limit.")
    max_parked_calls: int = setting(100_000, SettingBounds(1, unit="calls"),
        "Most parked JoinGroup and SyncGroup calls of this node; further ones are refused.")
    max_streams: int = setting(20_000, SettingBounds(1, unit="streams"),
        "Most open streams (Session, WatchRebalances) of this node. Each session "
        "member has one.")
    max_calls_per_connection: int = setting(20_000, SettingBounds(1, unit="calls"),
        "Most concurrent calls of one connection, including parked ones; further calls wait at the "
        "client. All members of a process that share a connection must fit.")
    max_pending_requests: int = setting(10_000, SettingBounds(1, unit="calls"),
        "Most calls in each of gRPC's accept queues: what a core answers in a heartbeat interval, "
        "plus a burst of joins. Further calls get CANCELLED and may be retried. Also the most "
        "joins, syncs, commits and queries in the node's own queue.")
    max_requests_per_second: int = setting(0, SettingBounds(0, 1_000_000, unit="calls per second"),
        "Most calls per second of one caller (principal if authenticated, else address). Further "
        "calls are delayed for up to a second, then refused; 0: no limit.")
    max_memory_mib: int = setting(0, SettingBounds(0, unit="MiB"),
        "Resident memory (RSS) above which new members, groups and streams are refused; existing "
        "ones continue. 0: no limit.")
    max_partitions_per_call: int = setting(
        limits.PARTITIONS.items, SettingBounds(1, 1_000_000, unit="partitions"),
        "Most topics, and most partitions, in one call that commits, fetches or deletes offsets or "
        "reports log ends. A shard handles them in one step, during which other calls wait.")
    max_members_per_call: int = setting(
        limits.MEMBERS.items, SettingBounds(1, 1_000_000, unit="members"),
        "Most members in one call: heartbeats of a batch, assignments of a group, members that "
        "leave.")
    max_groups_per_call: int = setting(
        limits.GROUPS.items, SettingBounds(1, 1_000_000, unit="groups"),
        "Most groups in one call that describes, deletes or watches groups.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveConfig(Section):
    """Logs, metrics, traces and recordings of a node."""

    log_format: str = setting("auto", ("auto", "json", "console"),
        "Format of log lines; auto: console on a terminal, else json.")
    log_level: str = setting("info", ("debug", "info", "warning", "error"),
        "Lowest level of log lines.")
    metrics_groups: str = setting("", None,
        "Groups with series of their own in /metrics (members, offsets, lag): group ids separated "
        "by commas, with * as wildcard; empty: none.")
    otel_endpoint: str = setting("", None,
        "http://HOST:PORT (or https) of an OpenTelemetry collector with OTLP over gRPC; empty: no "
        "traces. Heartbeats are never traced.")
    otel_sample_percent: int = setting(1, SettingBounds(0, 100, unit="percent"),
        "Share of calls that are traced if the client sends no trace context; otherwise the "
        "client decides.")
    record_dir: str = setting("", None,
        "Folder for recordings of all inputs of each shard, for `coordinator replay`; empty: "
        "disabled. Every input, including heartbeats, is a line: for debugging only. A full disk "
        "ends them, and nothing else, with one line in the log.")
