"""The scripts of `scripts/`, played with the Python member: see `scripts/README.md`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.assignors import Subscription, TopicPartition
from coordinator.assignors.consumer_protocol import (
    Assignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from coordinator.client.errors import CoordinatorError
from coordinator.client.member import calls
from coordinator.client.member.classic.part import ClassicPart
from coordinator.client.member.events import Granted, Lost, Revoking, Stopping
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.operations import CommitOperation
from coordinator.client.member.part import Leaving
from coordinator.client.offsets import Commit
from coordinator.client.settings.configs import ClassicConfig

SCRIPTS = Path(__file__).parent / "scripts"
KINDS: dict[type, str] = {
    calls.FindCoordinator: "find",
    calls.Join: "join",
    calls.Sync: "sync",
    calls.Beat: "beat",
    calls.LeaveCall: "leave",
    calls.CommitCall: "commit",
}
TURNS_MAX = 10_000


def cases() -> list[tuple[str, str]]:
    """Name of a script, and an assignor to play it with."""
    found = []
    for path in sorted(SCRIPTS.glob("*.txt")):
        _, word, _, keys = steps(path.stem)[0]
        assert word == "plays", f"{path.name} begins with {word}"
        found += [(path.stem, assignor) for assignor in keys["assignors"].split(",")]
    return found


def steps(name: str) -> list[tuple[int, str, str, dict[str, str]]]:
    """Steps of a script: line, word, the text without a key, and the keys."""
    found = []
    lines = (SCRIPTS / f"{name}.txt").read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        said, because, reason = line.partition(" because=")
        words = said.split()
        if not words or line.startswith("#"):
            continue
        keys = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        if because:
            keys["because"] = reason
        plain = " ".join(word for word in words[1:] if "=" not in word)
        found.append((number, words[0], plain, keys))
    return found


@pytest.mark.parametrize(("script", "assignor"), cases())
def test_the_python_member_plays(script, assignor):
    player = Player(assignor)
    for number, word, plain, keys in steps(script)[1:]:
        try:
            player.step(word, plain, keys)
        except AssertionError as error:
            raise AssertionError(f"{script}.txt, line {number}: {error}") from error
    player.step("ends", "", {})


def test_a_script_that_does_not_fit_is_noticed():
    player = Player("range")
    player.step("member", "", {})
    with pytest.raises(AssertionError, match=r"unexpected.*find"):
        player.step("polls", "", {})
    with pytest.raises(AssertionError, match="address"):
        player.step("sends", "find", {"address": "b:2"})


class Player:
    """Plays one script with one member."""

    def __init__(self, assignor: str) -> None:
        self._assignor = assignor
        self._now_ms = 0
        self._machine: MemberMachine
        self._actions: list = []
        self._out: list[calls.MemberCall] = []
        self._events: list = []
        self._commits: dict[str, CommitOperation | CoordinatorError] = {}
        self._holdings: dict[str, object] = {}

    def step(self, word: str, plain: str, keys: dict[str, str]) -> None:
        """Play one step."""
        if word not in ("sends", "cancels", "hangs-up"):
            unexpected = [self._told(action) for action in self._actions]
            assert not unexpected, f"unexpected: {unexpected}"
        if word != "hears":
            assert not self._events, f"not said: {self._events}"
        getattr(self, "play_" + word.replace("-", "_"))(plain, keys)

    # --- The member ---

    def play_member(self, _plain: str, keys: dict[str, str]) -> None:
        config = ClassicConfig(
            group_id="g",
            topics={"t": int(keys.get("partitions", 2))},
            assignors=tuple(keys.get("assignors", self._assignor).split(",")),
            instance_id=keys.get("instance"),
            session_timeout_ms=int(keys.get("session", 4_000)),
            rebalance_timeout_ms=int(keys.get("rebalance", 6_000)),
            heartbeat_interval_ms=int(keys.get("beat", 1_000)),
            max_poll_interval_ms=None,
        )
        bootstrap = keys.get("bootstrap", "a:1,b:2").split(",")
        self._machine = MemberMachine(ClassicPart, config, bootstrap, lambda: 0.5)
        self._machine.start(0)
        self._take()

    def play_sends(self, kind: str, keys: dict[str, str]) -> None:
        assert self._actions, f"nothing was sent, instead of {kind}"
        action = self._actions.pop(0)
        assert self._told(action) == f"sends {kind}", f"{self._told(action)}, not {kind}"
        fields = request_fields(action.request)
        for key, value in keys.items():
            assert fields[key] == value, f"{key} is {fields[key]!r}, not {value!r}"

    def play_cancels(self, kind: str, _keys: dict[str, str]) -> None:
        assert self._actions, f"nothing was cancelled, instead of {kind}"
        assert self._told(self._actions.pop(0)) == f"cancels {kind}"

    def play_hangs_up(self, _plain: str, _keys: dict[str, str]) -> None:
        assert self._actions, "it did not hang up"
        assert self._told(self._actions.pop(0)) == "hangs up"

    def play_answers(self, kind: str, keys: dict[str, str]) -> None:
        call = self._oldest(kind)
        self._receive(call, reply(kind, call.request, {"protocol": self._assignor, **keys}))

    def play_fails(self, kind: str, keys: dict[str, str]) -> None:
        match keys["how"]:
            case "dropped":
                failure = calls.Dropped("dropped")
            case "no-room":
                failure = calls.Overloaded("full", int(keys["after"]))
            case "refused":
                failure = calls.RefusedCall("refused", keys["code"])
            case how:
                assert how == "unreachable"
                failure = calls.CallUnanswered("gone")
        self._receive(self._oldest(kind), failure)

    def play_waits(self, ms: str, keys: dict[str, str]) -> None:
        until_ms = self._now_ms + int(ms)
        for _ in range(TURNS_MAX):
            if keys.get("beats") == "answered":
                self._answer_beats()
            if self._now_ms == until_ms:
                return
            deadline_ms = self._machine.next_deadline()
            self._now_ms = min(until_ms, until_ms if deadline_ms is None else deadline_ms)
            self._take()
        raise AssertionError("its deadlines never end")

    def play_sleeps(self, ms: str, _keys: dict[str, str]) -> None:
        self._now_ms += int(ms)

    def play_closed(self, _plain: str, _keys: dict[str, str]) -> None:
        assert self._machine.is_closed

    def play_stopped(self, _plain: str, keys: dict[str, str]) -> None:
        assert self._machine.part.state() == "stopped"
        assert self._machine.failure.code == keys["error"], self._machine.failure

    def play_ends(self, _plain: str, _keys: dict[str, str]) -> None:
        """The end of the script."""

    # --- Its owner ---

    def play_polls(self, _plain: str, _keys: dict[str, str]) -> None:
        self._machine.part.poll_begins(self._now_ms, gives_back=True)
        self._machine.part.progress.poll_ends(self._now_ms)
        self._events = self._machine.hand_out(self._now_ms)
        self._take()

    def play_looks(self, _plain: str, _keys: dict[str, str]) -> None:
        self._events = self._machine.hand_out(self._now_ms)
        self._take()

    def play_hears(self, plain: str, keys: dict[str, str]) -> None:
        kind, _, partitions = plain.partition(" ")
        assert self._events, f"it hears nothing, instead of {plain}"
        match self._events.pop(0):
            case Granted() as event:
                heard = f"assigned {numbers(event.partitions)} generation={event.generation}"
                expected = f"{kind} {partitions} generation={keys.get('generation')}"
            case Revoking(_, deadline_ms) as event:
                heard = f"revoking {numbers(event.partitions)} in={deadline_ms - self._now_ms}"
                expected = f"{kind} {partitions} in={keys.get('in')}"
            case Lost(_, reason) as event:
                assert keys.get("because", "?") in reason, reason
                heard, expected = f"lost {numbers(event.partitions)}", plain
            case Stopping(reason):
                assert keys.get("because", "?") in reason, reason
                heard, expected = "stopping", plain
        assert heard == expected, f"{heard}, not {expected}"

    def play_gives_back(self, plain: str, _keys: dict[str, str]) -> None:
        self._machine.give_back(self._machine.ledger.current(partitions(plain)), self._now_ms)
        self._take()

    def play_has(self, plain: str, _keys: dict[str, str]) -> None:
        found = numbers(self._machine.part.assignment)
        assert found == plain, f"it has {found}"

    def play_keeps(self, name: str, keys: dict[str, str]) -> None:
        partition = TopicPartition("t", int(keys["partition"]))
        self._holdings[name] = self._machine.ledger.of(partition)

    def play_commits(self, name: str, keys: dict[str, str]) -> None:
        commit = Commit(offsets(keys["offsets"]), offsets(keys.get("expected", "-")))
        shown = [self._holdings[one] for one in keys["with"].split(",")] if "with" in keys else None
        try:
            self._commits[name] = self._machine.commit(commit, shown, self._now_ms)
        except CoordinatorError as error:
            self._commits[name] = error
        self._take()

    def play_stored(self, name: str, _keys: dict[str, str]) -> None:
        found = self._commits[name]
        assert isinstance(found, CommitOperation), repr(found)
        assert found.is_done, "it is pending"
        assert found.error is None, repr(found.error)

    def play_pending(self, name: str, _keys: dict[str, str]) -> None:
        found = self._commits[name]
        assert isinstance(found, CommitOperation), repr(found)
        assert not found.is_done, f"it has ended: {found.error!r}"

    def play_refused(self, name: str, keys: dict[str, str]) -> None:
        found = self._commits[name]
        error = found.error if isinstance(found, CommitOperation) else found
        assert type(error).__name__ == keys["error"], repr(error)
        assert keys["because"] in str(error), str(error)

    def play_closes(self, _plain: str, keys: dict[str, str]) -> None:
        self._machine.close(Leaving(keys["because"]), self._now_ms)
        self._take()

    # --- Inside ---

    def _take(self) -> None:
        """Take all actions that the machine has."""
        while (action := self._machine.next_action(self._now_ms)) is not None:
            match action:
                case calls.MemberCall():
                    self._out.append(action)
                case calls.Cancel(call):
                    self._out.remove(call)
                case calls.HangUp():
                    self._lose_all()
                case _:
                    continue  # Something for the log.
            self._actions.append(action)

    def _lose_all(self) -> None:
        lost, self._out = self._out, []
        for call in lost:
            self._machine.handle(calls.Answer(call, calls.CallUnanswered("hung up")), self._now_ms)

    def _receive(self, call: calls.MemberCall, result: calls.Result) -> None:
        self._out.remove(call)
        self._machine.handle(calls.Answer(call, result), self._now_ms)
        self._take()

    def _oldest(self, kind: str) -> calls.MemberCall:
        found = [call for call in self._out if KINDS[type(call.request)] == kind]
        assert found, f"no {kind} is out"
        return found[0]

    def _answer_beats(self) -> None:
        for call in [call for call in self._out if isinstance(call.request, calls.Beat)]:
            if call in self._actions:
                self._actions.remove(call)
            self._receive(call, calls.Acknowledged())

    def _told(self, action) -> str:
        match action:
            case calls.MemberCall(request=request):
                return f"sends {KINDS[type(request)]}"
            case calls.Cancel(call):
                return f"cancels {KINDS[type(call.request)]}"
        return "hangs up"


def partitions(text: str) -> list[TopicPartition]:
    return [] if text == "-" else [TopicPartition("t", int(one)) for one in text.split(",")]


def numbers(found) -> str:
    return ",".join(str(p.partition) for p in sorted(found)) or "-"


def offsets(text: str) -> dict[TopicPartition, int]:
    pairs = [] if text == "-" else [pair.split(":") for pair in text.split(",")]
    return {TopicPartition("t", int(number)): int(offset) for number, offset in pairs}


def shown(found: dict[TopicPartition, int]) -> str:
    return ",".join(f"{p.partition}:{offset}" for p, offset in sorted(found.items())) or "-"


def request_fields(request) -> dict[str, str]:
    """Fields of a request that a script may state."""
    if isinstance(request, calls.FindCoordinator):
        return {"address": request.address}
    fields = {"member": request.member.member_id, "generation": str(request.member.generation)}
    match request:
        case calls.Join(protocols=protocols):
            fields["owned"] = numbers(decode_subscription(protocols[0][1]).owned_partitions)
            fields["assignors"] = ",".join(name for name, _ in protocols)
            fields["instance"] = request.member.instance_id or ""
        case calls.Sync(assignments=assignments):
            shares = [f"{member}:{assigned(data)}" for member, data in sorted(assignments)]
            fields["assignments"] = ";".join(shares) or "-"
        case calls.CommitCall(commit=commit):
            fields["offsets"] = shown(dict(commit.offsets))
            fields["expected"] = shown(dict(commit.expected))
    return fields


def assigned(data: bytes) -> str:
    assignment = decode_assignment(data)
    return numbers(assignment.partitions) + ("!" if assignment.user_data == b"gives back" else "")


def reply(kind: str, request, keys: dict[str, str]) -> calls.CallReply:
    """The answer that a script gives."""
    code = keys.get("error", "NONE")
    build: dict[str, Callable[[], calls.CallReply]] = {
        "find": lambda: calls.Found(request.address),
        "join": lambda: joined(code, keys),
        "sync": lambda: calls.Synced(code=code, message=code, assignment=share(keys)),
        "commit": lambda: committed(code, keys),
    }
    return build.get(kind, lambda: calls.Acknowledged(code=code, message=code))()


def joined(code: str, keys: dict[str, str]) -> calls.Joined:
    members = []
    for member in keys["members"].split(";") if "members" in keys else []:
        member_id, _, owned = member.partition(":")
        held, _, generation = owned.partition("@")
        subscription = Subscription(("t",), tuple(partitions(held)), int(generation or -1))
        members.append(calls.GenerationMember(member_id, None, encode_subscription(subscription)))
    return calls.Joined(
        code=code,
        message=code,
        member_id=keys.get("member", ""),
        generation=int(keys.get("generation", -1)),
        leader=keys.get("leader", ""),
        protocol_name=keys["protocol"],
        members=tuple(members),
    )


def share(keys: dict[str, str]) -> bytes:
    said = keys.get("partitions", "-")
    user_data = b"gives back" if said.endswith("!") else None
    return encode_assignment(Assignment(tuple(partitions(said.rstrip("!"))), user_data))


def committed(code: str, keys: dict[str, str]) -> calls.Committed:
    stored = offsets(keys.get("stored", "-"))
    return calls.Committed(
        codes=("OFFSET_MISMATCH",) if stored else (code,), stored=stored, message=code
    )
