"""The limits of `coordinator/v1/limits.proto`. Never edit: run `poe protos`."""

from typing import NamedTuple


class Limit(NamedTuple):
    """Limit of a repeated field, in items of a whole message, or of a text, in characters.

    setting: that replaces the number. beyond: the answer beyond it, where the limit is checked
    elsewhere. See `Bound` in the contract.
    """

    items: int = 0
    characters: int = 0
    why: str = ""
    setting: str = ""
    beyond: str = ""

    def items_by(self, settings: object) -> int:
        """Items in force with these settings."""
        return int(getattr(settings, self.setting)) if self.setting else self.items

    def words(self, settings: object = None) -> str:
        """Description of the violation."""
        if not self.items:
            return f"must not be longer than {self.characters} characters"
        hint = f" ({self.setting})" if self.setting else ""
        return f"at most {self.items_by(settings)} may be listed in one call{hint}"


GROUP_ID = Limit(characters=4_096, why="the id of a group")
MEMBER_ID = Limit(characters=4_096, why="the id of a member")
PART_OF_ID = Limit(characters=4_096, why="a part of a group's id")
INSTANCE_ID = Limit(characters=249, why="as in Kafka")
TOPIC = Limit(characters=249, why="as in Kafka")
SET_TOPIC = Limit(characters=249, beyond="INVALID_TOPIC_EXCEPTION")
CLIENT_ID = Limit(characters=1_024, why="member ids begin with it")
PROTOCOL = Limit(characters=255, why="the name of a protocol or of its type")
STATE = Limit(characters=255, why="the name of a state")
TYPE = Limit(characters=255, why="the name of a type")
SETTING = Limit(characters=255, why="the name of a setting")
REASON = Limit(characters=255, beyond="is cut there, as Kafka's clients do")
INCARNATION = Limit(characters=64, why="128 bits are enough")
LABEL = Limit(characters=1_024, why="a label of a deployment")
MEMBER_METADATA = Limit(setting="max_member_metadata_bytes", beyond="RESOURCE_EXHAUSTED")
ASSIGNMENT = Limit(setting="max_assignment_bytes", beyond="RESOURCE_EXHAUSTED")
OFFSET_METADATA = Limit(
    setting="offset_metadata_max_bytes",
    beyond="OFFSET_METADATA_TOO_LARGE, for the partition",
)
MANIFEST = Limit(setting="offset_manifest_max_bytes", beyond="INVALID_REQUEST")
DOCUMENT_NAME = Limit(characters=512, why="the name of a document, which may hold one of a topic")
DOCUMENT = Limit(setting="group_documents_max_bytes", beyond="INVALID_REQUEST")
PROTOCOLS = Limit(items=100, why="a client has a handful of assignors")
MEMBERS = Limit(
    items=20_000,
    why="members of one process or one group",
    setting="max_members_per_call",
)
PARTITIONS = Limit(
    items=10_000,
    why="one step of a shard takes them all",
    setting="max_partitions_per_call",
)
HELD = Limit(items=250_000, why="partitions of one group, each under a token of its own")
GROUPS = Limit(items=1_000, why="each is a question to a shard", setting="max_groups_per_call")
FILTER = Limit(items=100, why="there are fewer states and types")
SETTINGS = Limit(items=100, why="a policy has fewer settings")
SHARDS = Limit(items=1_024, why="there are no more shards")
REPLICAS = Limit(items=64, why="a shard has at most 16 replicas")
DOCUMENTS = Limit(items=16, why="a message holds so many large ones")
