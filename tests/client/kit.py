"""Members of the library against a virtual coordinator, message by message, on virtual time.

A `Player` carries a member's messages as `GroupMember` does: it sends what the machine wants,
hands the answers in, beats, and ticks. What its owner does (poll, commit) is up to the test. It
may be paused, as by SIGSTOP: nothing happens then, while the others and the coordinator go on.
"""

from __future__ import annotations

from coordinator.assignors import TopicPartition
from coordinator.client.holdings import Holding
from coordinator.client.machine import MemberConfig, MemberMachine, Phase
from coordinator.client.offsets import Commit
from coordinator.testing import VirtualCoordinator
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

GROUP = "g"
STEP_MS = 10
TURNS_MAX = 100


def t(*numbers: int) -> frozenset[TopicPartition]:
    """Partitions of the topic `t`."""
    return frozenset(TopicPartition("t", number) for number in numbers)


class Player:
    """One member. Made by `World.member`."""

    def __init__(self, world: World, config: MemberConfig) -> None:
        self.world = world
        self.machine = MemberMachine(config)
        self.paused = False
        self.left_because: list[str] = []
        self._call = None
        self._sent_at_ms = 0
        self._beat_at_ms = 0
        self._last_poll_ms = world.now_ms

    # --- What its owner does ---

    def poll(self) -> list:
        """The events, as `GroupMember.poll(timeout=0)` gives them: no message comes meanwhile."""
        self._last_poll_ms = self.world.now_ms
        self.machine.polled(self.world.now_ms)
        return self.machine.hand_out(self.world.now_ms)

    def stand_in_poll(self, ms: int) -> list:
        """The events, as `poll(timeout=...)` gives them: as soon as there are some."""
        self._last_poll_ms = self.world.now_ms
        self.machine.polled(self.world.now_ms)
        until_ms = self.world.now_ms + ms
        while not self.machine.events and self.world.now_ms < until_ms:
            self._last_poll_ms = self.world.now_ms
            self.world.advance(STEP_MS)
        self._last_poll_ms = self.world.now_ms
        return self.machine.hand_out(self.world.now_ms)

    def alive(self) -> None:
        self._last_poll_ms = self.world.now_ms

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self.machine.holdings.known(self.machine.assignment)

    def holding(self, number: int) -> Holding:
        return self.machine.holdings.of(TopicPartition("t", number))

    def commit(self, offsets: dict[int, int], *, holdings=None, **more):
        """Offsets by number of partition; returns how many calls it took. Raises as `commit`."""
        commit = Commit({TopicPartition("t", n): o for n, o in offsets.items()}, **more)
        machine, world = self.machine, self.world
        claimed = machine.begin_commit(commit, holdings)
        for calls in range(1, TURNS_MAX):
            sent = machine.commit_request(commit, claimed, world.now_ms)
            world.commits_sent.append(sent)
            response = world.coordinator.send(sent).response
            if machine.commit_answered(
                commit, claimed, sent, response, repeated=False, now_ms=world.now_ms
            ):
                return calls
            world.settle()
            while machine.is_between_assignments:
                world.advance(STEP_MS)
        raise AssertionError("it is repeated for ever")

    def leave(self) -> None:
        """As `close`."""
        request = self.machine.leave_request("closed")
        self.machine.stop("closed")
        self.world.coordinator.send(request)

    def kill(self) -> None:
        """Nothing is heard of it again."""
        self.paused = True
        if self._call is not None:
            self._call.cancel()

    # --- What the library does ---

    def turn(self) -> bool:
        """One message or deadline; False if there is nothing to do now."""
        machine, now_ms = self.machine, self.world.now_ms
        if self.paused or machine.phase in (Phase.IDLE, Phase.STOPPED):
            return False
        if machine.is_between_assignments:
            return self._join_or_sync(now_ms)
        reason = machine.tick(now_ms, self._last_poll_ms)
        if reason is not None:
            self.left_because.append(reason)
            self.world.coordinator.send(machine.leave_request(reason))
            machine.left()
            return True
        if machine.is_between_assignments:
            return True
        if now_ms < self._beat_at_ms:
            return False
        self._beat_at_ms = now_ms + machine.config.heartbeat_interval_ms
        response = self.world.coordinator.send(machine.heartbeat_request()).response
        machine.beat_answered(response, now_ms, now_ms)
        return True

    def _join_or_sync(self, now_ms: int) -> bool:
        machine = self.machine
        if self._call is None:
            joining = machine.phase is Phase.JOINING
            request = machine.join_request() if joining else machine.sync_request()
            if joining:
                request.require_known_member_id = False
            self._call, self._sent_at_ms = self.world.coordinator.send(request), now_ms
            return True
        if not self._call.done:
            return False
        call, self._call = self._call, None
        if isinstance(call.request, pb.JoinGroupRequest):
            machine.join_answered(call.response)
        else:
            machine.sync_answered(call.response, self._sent_at_ms, now_ms)
            self._beat_at_ms = now_ms + machine.config.heartbeat_interval_ms
        return True


class World:
    """One coordinator and its members. Heartbeats every 100 ms, sessions of 2 s, rebalances of 4 s:
    so a revocation has 2 s."""

    def __init__(self, assignor: str, partitions: int = 2) -> None:
        self.coordinator = VirtualCoordinator(
            group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=10
        )
        self.players: list[Player] = []
        self.commits_sent: list[pb.OffsetCommitRequest] = []
        self._assignor = assignor
        self._partitions = partitions

    @property
    def now_ms(self) -> int:
        return self.coordinator.now_ms

    def member(self, **settings) -> Player:
        """One that begins to join now."""
        defaults = {
            "group_id": GROUP,
            "topics": {"t": self._partitions},
            "assignors": (self._assignor,),
            "session_timeout_ms": 2_000,
            "rebalance_timeout_ms": 4_000,
            "heartbeat_interval_ms": 100,
        }
        player = Player(self, MemberConfig(**{**defaults, **settings}))
        self.players.append(player)
        return player

    def settle(self) -> None:
        """Everybody says what there is to say at this moment."""
        for _ in range(TURNS_MAX):
            if sum(player.turn() for player in self.players) == 0:
                return
        raise AssertionError("they never stop talking")

    def advance(self, ms: int, *, step_ms: int = STEP_MS) -> None:
        """Let time pass; the members look at their clocks every so often."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.settle()
            self.coordinator.advance(min(step_ms, until_ms - self.now_ms))
        self.settle()

    def share(self, *players: Player) -> None:
        """Poll until these hold all partitions, and each some."""
        for _ in range(1_000):
            for player in players:
                player.poll()
            held = [p for player in players for p in player.assignment]
            if sorted(held) == sorted(t(*range(self._partitions))):
                if all(player.assignment for player in players):
                    return
            self.advance(STEP_MS)
        raise AssertionError("they do not come to share")

    def stored(self, number: int = 0) -> int:
        """The offset of a partition of `t`; -1: none."""
        request = pb.OffsetFetchRequest(
            group_id=GROUP, topics=[{"name": "t", "partition_indexes": [number]}]
        )
        response = self.coordinator.send(request).response
        assert response.error_code == ErrorCode.NONE
        return response.topics[0].partitions[0].committed_offset
