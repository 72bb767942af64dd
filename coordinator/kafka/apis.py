"""APIs of Kafka's protocol that a node can offer, with their versions: the only table of them.

What ApiVersions answers, which frames are decoded, and the page for users all come from `APIS`.

Versions that are left out: OffsetCommit and OffsetFetch from 10 on, and Fetch from 13 on, name
topics by ids, which topics here do not have. OffsetCommit and OffsetFetch 0 kept offsets in
ZooKeeper; Kafka 4 has dropped them.

Source: the protocol guide of Apache Kafka 4.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER = 32_767
"""First flexible version of an API that has none."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API.

    Args:
        key: number in request headers.
        name: as in Kafka's protocol guide.
        low, high: first and last version that are offered.
        flexible: first version with compact lengths and tagged fields (KIP-482), which also have
            other headers.
        note: what users should know of it.
    """

    key: int
    name: str
    low: int
    high: int
    flexible: int = NEVER
    note: str = ""

    def offers(self, version: int) -> bool:
        return self.low <= version <= self.high

    def is_flexible(self, version: int) -> bool:
        """True for versions with tagged fields in body and headers."""
        return version >= self.flexible


PRODUCE = Api(
    0,
    "Produce",
    3,
    8,
    note="refused: there are no rows. It is listed because librdkafka asks for rows in a version "
    "that a node knows only if the node lists this one, too, and else tries without a pause",
)
FETCH = Api(
    1, "Fetch", 4, 12, 12, note="no rows: it waits as long as the client allows, and answers none"
)
LIST_OFFSETS = Api(
    2,
    "ListOffsets",
    1,
    9,
    6,
    note="latest: the end that members have reported; earliest: 0; any other time: none",
)
METADATA = Api(
    3,
    "Metadata",
    0,
    12,
    9,
    note="an unknown topic is an error and never created; topic ids are zero",
)
OFFSET_COMMIT = Api(
    8,
    "OffsetCommit",
    2,
    9,
    8,
    note="a retention time is ignored; a partition listed twice keeps the last offset",
)
OFFSET_FETCH = Api(
    9,
    "OffsetFetch",
    1,
    9,
    6,
    note="a stable offset is waited for, where Kafka has the client ask again; what is asked twice "
    "of a group has one answer",
)
FIND_COORDINATOR = Api(
    10,
    "FindCoordinator",
    0,
    6,
    3,
    note="of groups; a key of a transaction or of a share group is refused",
)
JOIN_GROUP = Api(
    11, "JoinGroup", 0, 9, 6, note="classic groups; a join whose client goes away is taken back"
)
HEARTBEAT = Api(12, "Heartbeat", 0, 4, 4)
LEAVE_GROUP = Api(13, "LeaveGroup", 0, 5, 4, note="several members from version 3")
SYNC_GROUP = Api(14, "SyncGroup", 0, 5, 4)
DESCRIBE_GROUPS = Api(
    15,
    "DescribeGroups",
    0,
    6,
    5,
    note="an unknown group is `Dead` before version 6, and an error from then on; a group named "
    "twice has one result",
)
LIST_GROUPS = Api(
    16,
    "ListGroups",
    0,
    5,
    3,
    note="of the node that is asked, as tools expect; groups that the caller may read",
)
SASL_HANDSHAKE = Api(17, "SaslHandshake", 0, 1)
API_VERSIONS = Api(
    18,
    "ApiVersions",
    0,
    4,
    3,
    note="answered to anybody; a version that is not known in version 0, with the list",
)
DESCRIBE_CONFIGS = Api(
    32, "DescribeConfigs", 1, 4, 4, note="topics and nodes have no configuration to show"
)
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", 0, 2, 2)
DELETE_GROUPS = Api(42, "DeleteGroups", 0, 2, 2, note="a group named twice has one result")
OFFSET_DELETE = Api(47, "OffsetDelete", 0, 0)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 2, 0)

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        DESCRIBE_CONFIGS,
        SASL_AUTHENTICATE,
        DELETE_GROUPS,
        OFFSET_DELETE,
        DESCRIBE_CLUSTER,
    )
}
"""All of them, by key."""
