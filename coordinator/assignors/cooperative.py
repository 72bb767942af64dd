"""Cooperative sticky: the sticky assignment, handed over in two rounds.

Members keep reading while the group rebalances, so a partition that changes its owner must
not be given away before the old owner has let go of it:

    round 1   the sticky assignment without the partitions that somebody else may still hold;
              their old owners see that they have lost them, stop, and join again
    round 2   nobody holds them any more, and they are handed out

"May still hold" goes by what members *say*, not by whether it is believed (`claims`). A
claim that is void because it is stale, or disputed, or about a topic that the member no
longer wants, is no reason to leave a partition where it is; but its owner may be reading it
until it has been told, so nobody else gets it in this round. With t of 4 partitions:

    C1 holds t-0 t-1    C2 holds t-0 t-2    C3 holds nothing
    sticky:       C1 t-1 t-3    C2 t-2    C3 t-0
    cooperative:  C1 t-1 t-3    C2 t-2    C3 nothing, for t-0 is still with C1 or C2

Two rounds are enough if membership is quiet. After the first all claims are of one
generation and none overlap, and the first round's sticky assignment is a most even one that
keeps all of them; so the sticky assignor moves none of them, and nothing is withheld.

Cost: `sticky`, plus members' claims and partitions once.

Source: KIP-429; Kafka `CooperativeStickyAssignor`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.assignors.base import ClusterMetadata, RebalanceProtocol, Subscription
from coordinator.assignors.claims import believed_owners, held
from coordinator.assignors.partitions import TopicPartition
from coordinator.assignors.sticky import assign_stickily


@dataclass(frozen=True, slots=True)
class CooperativeStickyAssignor:
    """Sticky without stopping the world. Source: KIP-429."""

    name: str = "cooperative-sticky"
    protocols: tuple[RebalanceProtocol, ...] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def assign(
        self, view: ClusterMetadata, members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor.assign`, except that partitions on the move are in no list.

        Members that find a partition missing which they hold revoke it and join again; the
        rebalance that follows hands it out. What members hold is in `owned_partitions`.
        """
        pasts = {member_id: held(member) for member_id, member in members.items()}
        assignment = assign_stickily(view, members, pasts)
        owners = believed_owners(pasts)
        claimed_by = {p: m for m, past in pasts.items() for p in past.partitions}
        disputed = {p for m, past in pasts.items() for p in past.partitions if claimed_by[p] != m}
        return {
            member_id: [
                partition
                for partition in partitions
                if owners.get(partition) == member_id
                or (claimed_by.get(partition, member_id) == member_id and partition not in disputed)
            ]
            for member_id, partitions in assignment.items()
        }
