// Workers against a coordinator in memory, on virtual time.

import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeSubscription } from "../src/assignors/consumerProtocol.js";
import { readDeclaration } from "../src/assignors/declarations.js";
import { aborted } from "../src/clock.js";
import { FatalError, PartitionRevoked, StaleMember } from "../src/errors.js";
import type { Result } from "../src/member/calls.js";
import type { Partition } from "../src/worker/partition.js";
import { settle, virtual } from "./virtual.js";

const EAGER = { assignors: "range" } as const;
const forever = (p: Partition): Promise<void> => aborted(p.signal);

test("a handler for each partition, from the committed offset or the start", async () => {
  const { worker, coordinator, clock } = virtual({ start: (of) => 100 + of.partition });
  coordinator.stored.set("t-1", 7n);
  const began = new Map<number, bigint>();
  worker.handler(async (p) => {
    began.set(p.number, p.position);
    await forever(p);
  });
  const serving = worker.serve();
  await clock.advance(0);
  assert.deepEqual([...began].sort(), [
    [0, 100n],
    [1, 7n],
  ]);
  const stopping = worker.stop("enough");
  await clock.advance(20_000);
  await Promise.all([serving, stopping]);
  assert.deepEqual(
    coordinator.sentOf("leave").map(({ reason }) => reason),
    ["enough"],
  );
});

test("a handler that returns is called again from where it got to; done is done", async () => {
  const { worker, clock } = virtual({ idleMs: 500 });
  const calls: string[] = [];
  worker.handler(async (p) => {
    calls.push(`${p.number}@${p.position}`);
    await p.commit(p.position + 5n);
    if (p.number === 1) p.done();
  });
  void worker.serve();
  await clock.advance(499);
  assert.deepEqual(calls.sort(), ["0@0", "1@0"]);
  await clock.advance(1);
  assert.deepEqual(calls.slice(2), ["0@5"]);
  assert.deepEqual(worker.state.partitions.map(({ stage }) => stage).sort(), ["done", "idle"]);
  await worker.stop();
});

test("a commit of a partition that is being revoked stores, and ends the handler", async () => {
  const { worker, clock, coordinator } = virtual();
  let thrown: unknown;
  worker.handler(async (p) => {
    if (p.number === 0) return forever(p);
    try {
      await aborted(p.revoking);
      assert.ok(p.valid);
      assert.equal(p.deadlineMs, clock.now() + 3_000);
      await p.commit(9);
    } catch (error) {
      thrown = error;
      throw error;
    }
    return undefined;
  });
  void worker.serve();
  await clock.advance(0);
  coordinator.rebalance("0");
  await clock.advance(1_020);
  assert.ok(thrown instanceof PartitionRevoked);
  assert.equal(coordinator.stored.get("t-1"), 9n);
  const [, , given] = coordinator.sentOf("join");
  assert.ok(given, "it has joined again to have the partition handed out");
  assert.deepEqual(
    worker.state.partitions.map((p) => p.number),
    [0],
  );
});

test("a manual handler goes on committing until it has handed over", async () => {
  const { worker, clock, coordinator } = virtual(EAGER);
  worker.handler(
    async (p) => {
      await aborted(p.revoking);
      for (let offset = 1; offset <= 3; offset++) await p.commit(offset);
    },
    { drain: "manual" },
  );
  void worker.serve();
  await clock.advance(0);
  coordinator.rebalance();
  await clock.advance(1_100);
  assert.equal(coordinator.stored.get("t-0"), 3n);
});

test("the late commit of a slow handler is refused here, and its heir waits for it", async () => {
  const { worker, clock, coordinator, logger } = virtual(EAGER);
  const runs: Partition[] = [];
  let finish = (): void => {};
  const slow = new Promise<void>((resolve) => (finish = resolve));
  const late: unknown[] = [];
  worker.handler(async (p) => {
    if (p.number === 1) return forever(p);
    runs.push(p);
    if (runs.length > 1) return forever(p);
    await slow;
    await p.commit(10).catch((error: unknown) => late.push(error));
    return undefined;
  });
  void worker.serve();
  await clock.advance(0);
  coordinator.rebalance();
  await clock.advance(4_500);
  assert.equal(runs.length, 1, "never two handlers of one partition");
  assert.equal(runs[0]!.valid, false);
  assert.ok(runs[0]!.signal.aborted);
  const states = worker.state.partitions.map(({ number, stage }) => `${number} ${stage}`);
  assert.deepEqual(states.sort(), ["0 overdue", "0 waiting", "1 running"]);
  assert.equal(logger.of("t-0 has not ended").length, 1);
  coordinator.rebalance();
  await clock.advance(4_500);
  assert.equal(runs.length, 1, "nor after the one that waited has ended");
  const sent = coordinator.sentOf("commit").length;
  finish();
  await settle();
  assert.ok(late[0] instanceof StaleMember);
  assert.equal(coordinator.sentOf("commit").length, sent, "nothing was sent");
  assert.equal(runs.length, 2, "now its heir begins");
  assert.ok(runs[1]!.token > runs[0]!.token);
});

test("a partition goes back when its handler has ended, not when the slowest has", async () => {
  const { worker, clock, coordinator } = virtual();
  worker.handler((p) => (p.number === 0 ? aborted(p.revoking) : forever(p)));
  void worker.serve();
  await clock.advance(0);
  coordinator.rebalance("");
  await clock.advance(1_050);
  const owned = coordinator.sentOf("join").length;
  assert.equal(owned, 3, "joined, asked to give back, and joined again with one of them");
  assert.deepEqual(
    worker.state.partitions.map((p) => p.number),
    [1],
  );
  await clock.advance(3_000);
  assert.equal(worker.state.partitions.length, 0);
});

test("a failing handler is called again with growing pauses; a commit begins them anew", async () => {
  const { worker, clock, coordinator, logger } = virtual({ topics: { t: 1 } });
  const calls: number[] = [];
  worker.handler(async (p) => {
    calls.push(clock.now());
    if (calls.length === 4) await p.commit(1);
    throw new Error("poison\nin two lines");
  });
  void worker.serve();
  await clock.advance(0);
  await clock.advance(8_000);
  assert.deepEqual(calls, [0, 1_000, 3_000, 7_000, 8_000]);
  assert.equal(coordinator.stored.get("t-0"), 1n);
  const [line] = logger.of("attempt 3");
  assert.match(line!, /^WARN member m of group g: .*t-0.*poison \| in two lines; again in 4 s$/);
  await clock.advance(600_000);
  const pauses = calls.slice(1).map((at, index) => at - calls[index]!);
  assert.equal(Math.max(...pauses), 60_000);
});

test("release gives the partition up; handed back, it rests first", async () => {
  const { worker, clock, coordinator } = virtual({ topics: { t: 1 }, onError: "release" });
  const calls: number[] = [];
  const partitions: Partition[] = [];
  worker.handler((p) => {
    calls.push(clock.now());
    partitions.push(p);
    throw new Error("poison");
  });
  void worker.serve();
  await clock.advance(100);
  assert.deepEqual(calls, [0]);
  assert.equal(coordinator.sentOf("join").length, 2);
  assert.deepEqual(
    worker.state.partitions.map(({ stage }) => stage),
    ["resting"],
  );
  await assert.rejects(partitions[0]!.commit(1), StaleMember);
  await clock.advance(900);
  assert.deepEqual(calls, [0, 1_000]);
  await clock.advance(2_000);
  assert.deepEqual(calls, [0, 1_000, 3_000], "it has failed twice in a row");
});

test("what is released is somebody else's for a while, until a commit; released once", async () => {
  const { worker, clock, coordinator } = virtual({ onError: "release" });
  let fails = true;
  worker.handler(async (p) => {
    if (p.number === 0 && fails) throw new Error("poison");
    await p.commit(1);
    p.done();
  });
  void worker.serve();
  const wished = (): number[][] =>
    coordinator.sentOf("join").map(({ protocols: [first] }) => {
      const { topics, userData } = decodeSubscription(first!.metadata);
      const { counts, unwanted } = readDeclaration(topics, userData)!;
      assert.deepEqual([...counts], [["t", 2]]);
      return unwanted.map(({ partition }) => partition);
    });
  await clock.advance(4_000); // Handed back: nobody else is there.
  assert.deepEqual(wished(), [[], [0]]);
  fails = false;
  await clock.advance(5_000);
  assert.equal(coordinator.stored.get("t-0"), 1n);
  coordinator.rebalance();
  await clock.advance(2_000);
  assert.deepEqual(wished(), [[], [0], []]);
});

test("a handler that has not ended has its partition given to others", async () => {
  const { worker, clock, coordinator } = virtual(EAGER);
  worker.handler((p) => (p.number === 0 ? new Promise(() => {}) : aborted(p.revoking)));
  void worker.serve();
  await clock.advance(0);
  coordinator.rebalance();
  await clock.advance(5_000);
  const [metadata] = coordinator
    .sentOf("join")
    .at(-1)!
    .protocols.map((each) => each.metadata);
  const { topics, userData } = decodeSubscription(metadata!);
  assert.deepEqual(readDeclaration(topics, userData)!.unwanted, [{ topic: "t", partition: 0 }]);
});

test("the handler's end waits for commits that it has not awaited", async () => {
  const { worker, clock, coordinator } = virtual({ topics: { t: 1 } });
  let answer = (_: Result): void => {};
  coordinator.answer("commit", new Promise<Result>((resolve) => (answer = resolve)));
  worker.handler((p) => {
    void p.commit(3);
    p.done();
  });
  void worker.serve();
  await clock.advance(0);
  void worker.stop();
  await clock.advance(1_000);
  assert.equal(worker.state.partitions.length, 1, "it has not ended");
  assert.equal(coordinator.sentOf("leave").length, 0);
  answer({ kind: "committed", codes: ["NONE"], stored: new Map(), message: "" });
  await clock.advance(0);
  assert.equal(coordinator.sentOf("leave").length, 1);
});

test("what a handler leaves behind when it has ended may not commit any more", async () => {
  const { worker, clock, coordinator } = virtual(EAGER);
  let leaked: Partition | undefined;
  worker.handler((p) => {
    if (p.number === 0) leaked = p;
    return aborted(p.revoking);
  });
  void worker.serve();
  await clock.advance(0);
  coordinator.rebalance();
  await clock.advance(1_000); // Ended now, and not given back yet.
  await assert.rejects(leaked!.commit(1), /the handler has ended/);
  await assert.rejects(worker.commit([[leaked!, 1]]), StaleMember);
  assert.equal(leaked!.valid, false);
  assert.equal(coordinator.sentOf("commit").length, 0);
});

test("stop, or the last of so many attempts: the worker leaves and serve rejects", async () => {
  const { worker, clock, coordinator } = virtual({
    topics: { t: 1 },
    maxAttempts: 3,
    afterMaxAttempts: "stop",
  });
  let calls = 0;
  worker.handler(() => {
    calls += 1;
    throw new RangeError("poison");
  });
  const serving = assert.rejects(worker.serve(), RangeError);
  await clock.advance(30_000);
  await serving;
  assert.equal(calls, 3);
  assert.match(coordinator.sentOf("leave")[0]!.reason, /poison/);
});

test("stop has handlers finish, commit and leave; it may be called twice", async () => {
  const { worker, clock, coordinator, logger } = virtual();
  worker.handler(async (p) => {
    for (let offset = 1n; ; offset++) {
      await new Promise<void>((resolve) => clock.timer(100, resolve));
      await p.commit(offset);
    }
  });
  const serving = worker.serve();
  await clock.advance(1_000);
  const stopping = [worker.stop("deploying"), worker.stop("again")];
  await clock.advance(150);
  await Promise.all([serving, ...stopping]);
  assert.equal(coordinator.sentOf("leave").length, 1);
  assert.equal(logger.of("lost").length, 0, "all was given back");
  assert.equal(logger.of("left the group: deploying").length, 1);
});

test("while it drains, what has ended is given back, and nothing new is asked for", async () => {
  const { worker, clock, coordinator } = virtual();
  worker.handler((p) => (p.number === 0 ? aborted(p.revoking) : forever(p)));
  void worker.serve();
  await clock.advance(0);
  void worker.stop();
  coordinator.given = "";
  await clock.advance(100);
  const join = coordinator.sentOf("join").at(-1)!;
  const { topics, owned } = decodeSubscription(join.protocols[0]!.metadata);
  assert.deepEqual([topics, owned.map(({ partition }) => partition)], [[], [1]]);
  assert.equal(worker.state.phase, "draining");
});

test("a handler that does not end has so long, and is then refused", async () => {
  const { worker, clock, coordinator } = virtual({ graceMs: 5_000, topics: { t: 1 } });
  let partition: Partition | undefined;
  worker.handler((p) => {
    partition = p;
    return new Promise(() => {});
  });
  const serving = worker.serve();
  await clock.advance(0);
  void worker.stop();
  await clock.advance(4_999);
  assert.equal(coordinator.sentOf("leave").length, 0);
  await clock.advance(1);
  await serving;
  assert.equal(coordinator.sentOf("leave").length, 1);
  assert.equal(partition!.valid, false);
  await assert.rejects(partition!.commit(1), StaleMember);
});

test("several partitions are stored at once, for the holdings that the caller knows", async () => {
  const { worker, clock, coordinator } = virtual();
  const found: Partition[] = [];
  worker.handler((p) => {
    found.push(p);
    return forever(p);
  });
  void worker.serve();
  await clock.advance(0);
  await worker.commit(new Map(found.map((p) => [p, 5])), { atomic: true });
  const [sent] = coordinator.sentOf("commit");
  assert.equal(sent!.commit.atomic, true);
  assert.deepEqual([...coordinator.stored.values()], [5n, 5n]);
  const stopping = worker.stop();
  await clock.advance(20_000);
  await stopping;
  await assert.rejects(worker.commit([[found[0]!, 6]]), StaleMember);
});

test("what is not an offset is refused in a sentence, and a negative one before any call", async () => {
  const { worker, clock, coordinator } = virtual({ topics: { t: 1 } });
  let partition: Partition | undefined;
  worker.handler((p) => {
    partition = p;
    return forever(p);
  });
  void worker.serve();
  await clock.advance(0);
  await assert.rejects(partition!.commit(1.5), /an offset is a whole number, 5n or 5/);
  await assert.rejects(partition!.commit(-1), /negative: t-0/);
  assert.equal(coordinator.sentOf("commit").length, 0);
});

test("a commit that nobody awaits ends no process, and the handler waits for it", async () => {
  const { worker, clock, coordinator, logger } = virtual({ topics: { t: 1 } });
  worker.handler(async (p) => {
    void p.commit(3);
    void p.commit(-3);
    p.done();
  });
  void worker.serve();
  await clock.advance(0);
  assert.equal(coordinator.stored.get("t-0"), 3n);
  assert.equal(logger.of("commit of t-0 refused").length, 1);
});

test("a coordinator that is down is said within two seconds, and then ever more rarely", async () => {
  const { worker, clock, coordinator, logger } = virtual();
  coordinator.isDown = true;
  worker.handler(forever);
  void worker.serve();
  await clock.advance(2_000);
  const [line] = logger.of("unreachable");
  assert.match(
    line!,
    /^WARN member c of group g: coordinator unreachable for 1\.\d s \(127\.0\.0\.1:7400: ECONNREFUSED\)/,
  );
  await clock.advance(58_000);
  assert.equal(logger.of("unreachable").length, 5, "after 1, 3, 7, 15 and 31 seconds");
  coordinator.isDown = false;
  await clock.advance(10_000);
  assert.equal(logger.of("reached again").length, 1);
  assert.equal(logger.of("granted t-0…1, generation 1").length, 1);
  await clock.advance(60_000);
  assert.equal(logger.of("unreachable").length, 5);
});

test("a group that refuses the member for good has serve reject", async () => {
  const { worker, clock, coordinator } = virtual();
  coordinator.answer("join", {
    kind: "joined",
    code: "GROUP_MAX_SIZE_REACHED",
    message: "10 members are there",
    memberId: "",
    generation: -1,
    leader: "",
    protocolName: "",
    members: [],
    skipAssignment: false,
  });
  worker.handler(forever);
  const serving = assert.rejects(worker.serve(), FatalError);
  await clock.advance(100);
  await serving;
  assert.equal(worker.state.phase, "stopped");
  assert.ok(worker.state.lastError instanceof FatalError);
});

test("a group that follows range is joined with range, and the way to move over is said", async () => {
  const inconsistent = {
    kind: "joined",
    code: "INCONSISTENT_GROUP_PROTOCOL",
    message: "",
    memberId: "",
    generation: -1,
    leader: "",
    protocolName: "",
    members: [],
    skipAssignment: false,
  } as const;
  const { worker, clock, coordinator, logger } = virtual();
  coordinator.answer("join", inconsistent);
  worker.handler(forever);
  void worker.serve();
  await clock.advance(0);
  const names = coordinator.sentOf("join").map(({ protocols }) => protocols.map((p) => p.name));
  assert.deepEqual(names, [["cooperative-sticky"], ["range"]]);
  assert.match(logger.of("joining with range")[0]!, /restart all its members twice/);

  const named = virtual({ assignors: ["cooperative-sticky"] });
  named.coordinator.answer("join", inconsistent);
  named.worker.handler(forever);
  const refused = assert.rejects(named.worker.serve(), FatalError);
  await named.clock.advance(100);
  await refused;
});

test("topics that are asked for again: more partitions are joined for", async () => {
  let count = 1;
  const { worker, clock } = virtual({ topics: () => ({ t: count }), topicsRefreshMs: 5_000 });
  worker.handler(forever);
  void worker.serve();
  await clock.advance(0);
  assert.equal(worker.state.partitions.length, 1);
  count = 3;
  await clock.advance(5_000);
  assert.equal(worker.state.partitions.length, 3);
});

test("topics that change while it joins are joined for again", async () => {
  let topics: Record<string, number> = { t: 1 };
  const { worker, clock, coordinator } = virtual({
    topics: () => topics,
    topicsRefreshMs: 5_000,
    assignors: "cooperative-sticky",
  });
  worker.handler(forever);
  void worker.serve();
  await clock.advance(3_500);
  let answer = (_: Result): void => {};
  coordinator.rebalance();
  coordinator.answer("join", new Promise<Result>((resolve) => (answer = resolve)));
  topics = { t: 1, u: 1 };
  await clock.advance(2_000);
  const parked = coordinator.sentOf("join").at(-1)!;
  answer({
    ...{ kind: "joined", code: "NONE", message: "", memberId: "m", generation: 2, leader: "m" },
    protocolName: "cooperative-sticky",
    members: [{ memberId: "m", instanceId: undefined, metadata: parked.protocols[0]!.metadata }],
    skipAssignment: false,
  });
  await clock.advance(100);
  assert.deepEqual(
    worker.state.partitions.map(({ topic }) => topic),
    ["t", "u"],
  );
});

test("what happens to the member is one line each", async () => {
  const { worker, clock, coordinator, logger } = virtual();
  worker.handler((p) => aborted(p.revoking));
  void worker.serve();
  await clock.advance(0);
  coordinator.rebalance("0");
  await clock.advance(1_000);
  for (const text of ["granted t-0…1, generation 1", "revoking t-1", "joined generation 2"]) {
    const [line] = logger.of(text);
    assert.match(line ?? "", /^INFO member m of group g: /, text);
  }
});
