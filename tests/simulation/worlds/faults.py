"""Faults of a world and their schedule, drawn from the seed.

A fault is a function that begins it and, where it lasts, sets the time of its end. To add one,
write the function and name it in `KINDS` with its weight; `test_worlds.py` asks that each kind
strikes somewhere in the seeds of CI.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.testing.engine.network import FAIR, Weather
from tests.simulation.worlds.members import SimulatedMember
from tests.simulation.worlds.nodes import SimulatedNode

if TYPE_CHECKING:
    from tests.simulation.worlds.world import World

Fault = Callable[["World", random.Random], None]

PAUSE_BETWEEN_S = 0.5
"""Between two faults, on average."""


def strike(world: World, dice: random.Random) -> None:
    """One fault, of any kind that this world can have."""
    kinds = [kind for kind in KINDS if world.is_cluster or kind not in OF_CLUSTERS]
    (kind,) = dice.choices(kinds, [KINDS[kind] for kind in kinds])
    kind(world, dice)


# --- Nodes ------------------------------------------------------------------------------------


def _a_node(world: World, dice: random.Random) -> SimulatedNode | None:
    up = [node for node in world.nodes if node.is_up and not node.is_paused]
    return dice.choice(up) if up else None


def kill_node(world: World, dice: random.Random) -> None:
    """It comes back at once, within its session, or later."""
    node = _a_node(world, dice)
    if node is None:
        return
    silently = dice.random() < 0.3
    session_s = world.store.session_timeout_s
    absent_s = dice.choice((0.01, 0.3 * session_s, 1.5 * session_s, 3 * session_s))
    world.story.fault(
        "node killed", node.name, f"killed{', with its machine' * silently}, for {absent_s:.2f} s"
    )
    node.kill(silently=silently)
    world.later(absent_s, node.start)


def pause_node(world: World, dice: random.Random) -> None:
    node = _a_node(world, dice)
    if node is None or node.process is None:
        return
    seconds = dice.choice((0.1, 0.5, 1.0, 2.5)) * (0.5 + dice.random())
    world.story.fault("node paused", node.name, f"paused for {seconds:.2f} s")
    node.process.pause(world.now() + seconds)


def stop_node(world: World, dice: random.Random) -> None:
    """Gracefully, and another process takes its place."""
    node = _a_node(world, dice)
    if node is None or node.node is None:
        return
    world.story.fault("node stopped", node.name, "stopped gracefully")
    node.stop()
    world.later(1.0 + 2 * dice.random(), node.start)


def drain_node(world: World, dice: random.Random) -> None:
    node = _a_node(world, dice)
    if node is None or node.node is None or node.node.cluster is None:
        return
    cluster = node.node.cluster
    world.story.fault("node drained", node.name, "drained for a while")
    cluster.drain()
    world.later(1.0 + dice.random(), lambda: cluster.drain(undo=True))


def put_bug(world: World, dice: random.Random) -> None:
    node = _a_node(world, dice)
    if node is None:
        return
    step = dice.choice(("restore", "append_failed", "step", "append", "load"))
    world.story.fault(f"bug in {step}", node.name, f"has a bug in {step}")
    node.watch.bugs.add(step)
    if step == "append_failed":
        world.store.log.fail_next_append("unavailable")


# --- The network ------------------------------------------------------------------------------


def cut(world: World, dice: random.Random) -> None:
    """Between a node and the store, another node, or a member."""
    node = dice.choice(world.nodes).name
    others = ["store", *(other.name for other in world.nodes), *(m.name for m in world.members)]
    other = dice.choice([name for name in others if name != node])
    seconds = dice.choice((0.3, 1.0, 3.0)) * (0.5 + dice.random())
    world.story.fault("cut", node, f"is cut off from {other} for {seconds:.2f} s")
    world.network.cut(node, other)
    world.later(seconds, lambda: world.network.mend(node, other))


def bad_weather(world: World, dice: random.Random) -> None:
    world.network.weather = weather = Weather(
        slow=dice.choice((0.0, 0.3, 0.8)),
        lost=dice.choice((0.0, 0.0, 0.02, 0.1)),
        reset=dice.choice((0.0, 0.05, 0.2)),
        doubled=dice.choice((0.0, 0.1, 0.3)),
    )
    world.story.fault("bad weather", "network", f"{weather}")
    world.later(1.0 + 2 * dice.random(), lambda: setattr(world.network, "weather", FAIR))


# --- The store --------------------------------------------------------------------------------


def lose_majority(world: World, dice: random.Random) -> None:
    if not world.store.has_majority:
        return
    seconds = 0.2 + 1.5 * dice.random()
    world.story.fault("majority lost", "store", f"has no majority for {seconds:.2f} s")
    world.store.lose_majority()
    world.later(seconds, world.store.regain_majority)


def fill_store(world: World, dice: random.Random) -> None:
    seconds = 0.2 + dice.random()
    world.story.fault("store full", "store", f"is full for {seconds:.2f} s")
    world.store.is_full = True
    world.later(seconds, lambda: setattr(world.store, "is_full", False))


def slow_store(world: World, dice: random.Random) -> None:
    seconds = 0.5 + 1.5 * dice.random()
    world.store.slow_append_s = dice.choice((0.1, 0.4, 0.8))
    world.story.fault("slow appends", "store", f"appends slowly for {seconds:.2f} s")
    world.later(seconds, lambda: setattr(world.store, "slow_append_s", 0.0))


def fail_log(world: World, dice: random.Random) -> None:
    """A step of the log fails, in one of the ways in which a log may."""
    step = dice.choice(("append", "append", "append", "fence", "load", "read", "write_snapshot"))
    kinds = ("ambiguous", "lost", "unavailable")
    kind = dice.choice((*kinds, "full", "too_large", "fenced") if step == "append" else kinds)
    world.story.fault(f"{step} {kind}", "store", f"the next {step} fails: {kind}")
    world.store.log.fail_next(step, kind)


def depose(world: World, dice: random.Random) -> None:
    """The controller's key is deleted by hand. Sessions last: others wait for all of their time."""
    world.story.fault("controller deposed", "store", "forgets who is the controller")
    world.store.coordination.depose()


# --- Members ----------------------------------------------------------------------------------


def _a_member(world: World, dice: random.Random) -> SimulatedMember | None:
    up = [member for member in world.members if member.is_up]
    return dice.choice(up) if up else None


def kill_member(world: World, dice: random.Random) -> None:
    member = _a_member(world, dice)
    if member is None:
        return
    absent_s = dice.choice((0.05, 0.5, 3.0)) * (0.5 + dice.random())
    world.story.fault("member killed", member.name, f"killed, for {absent_s:.2f} s")
    member.kill()
    world.later(absent_s, member.start)


def pause_member(world: World, dice: random.Random) -> None:
    member = _a_member(world, dice)
    if member is None or member.process is None:
        return
    seconds = dice.choice((0.3, 1.0, 3.0)) * (0.5 + dice.random())
    world.story.fault("member paused", member.name, f"paused for {seconds:.2f} s")
    member.process.pause(world.now() + seconds)


def end_member(world: World, dice: random.Random) -> None:
    member = _a_member(world, dice)
    if member is None:
        return
    world.story.fault("member left", member.name, "leaves")
    member.leave()
    world.later(1.0 + 2 * dice.random(), member.start)


def step_clock(world: World, dice: random.Random) -> None:
    """Somebody's wall clock is set: whatever runs must not notice."""
    machines: list[SimulatedNode | SimulatedMember] = [*world.nodes, *world.members]
    machine = dice.choice(machines)
    offset_s = dice.choice((-3600, -5, 5, 3600))
    world.story.fault("wall clock set", machine.name, f"wall clock moves by {offset_s} s")
    machine.clock.wall_offset_ns += offset_s * 1_000_000_000


KINDS: dict[Fault, float] = {
    kill_node: 3,
    pause_node: 3,
    stop_node: 1,
    drain_node: 1,
    put_bug: 1.5,
    cut: 3,
    bad_weather: 3,
    lose_majority: 1,
    fill_store: 0.7,
    slow_store: 1.5,
    fail_log: 3,
    depose: 0.7,
    kill_member: 3,
    pause_member: 2,
    end_member: 1.5,
    step_clock: 0.5,
}
"""All kinds, and how often each strikes among them."""
OF_CLUSTERS = frozenset({drain_node, lose_majority, depose})
"""Kinds that need a store that is shared."""
