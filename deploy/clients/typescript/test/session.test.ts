// A member of a session group, its machine alone: which commits it sends, and under which token.

import assert from "node:assert/strict";
import { test } from "node:test";
import { StaleMember } from "../src/errors.js";
import * as pb from "../src/generated/coordinator/v1/session.js";
import type { Action, Call, Heard, Request } from "../src/member/calls.js";
import type { MemberEvent } from "../src/member/events.js";
import type { Holding } from "../src/member/ledger.js";
import { Machine } from "../src/member/machine.js";
import type { CommitOperation } from "../src/member/operations.js";

const { ACTIVE, DRAIN, LOST, WARM } = pb.Wanted_Order;
const LEASE_MS = 10_000;

/** Partition, order, token. */
type Told = readonly [number, pb.Wanted_Order, number];

class Coordinator {
  nowMs = 0;
  leaseMs = LEASE_MS;
  /** Time that each search for the coordinator had. */
  readonly finds: (number | undefined)[] = [];
  readonly said: pb.SessionRequest[] = [];
  readonly events: MemberEvent[] = [];
  readonly machine: Machine;
  private out: Call[] = [];
  private version = 0n;

  constructor() {
    this.machine = new Machine(
      {
        groupId: "g",
        protocol: "session",
        topics: new Map([["t", 4]]),
        clientId: "c",
        assignors: [],
        sessionTimeoutMs: 45_000,
        rebalanceTimeoutMs: 60_000,
        heartbeatIntervalMs: 3_000,
        incarnation: { id: Buffer.alloc(16), startedAtMs: 0 },
      },
      ["a:1"],
      () => 0.5,
    );
    this.machine.start(0);
    this.take();
  }

  /** Attached, with these. */
  static attached(...told: Told[]): Coordinator {
    const coordinator = new Coordinator();
    coordinator.attach(...told);
    return coordinator;
  }

  attach(...told: Told[]): void {
    const attached = pb.Attached.fromPartial({
      sessionId: "s",
      memberId: "m",
      coordinatorEpoch: 5n,
      leaseMs: this.leaseMs,
      heartbeatIntervalMs: this.leaseMs / 4,
      wanted: this.wanted(told),
    });
    this.hear({ attached });
  }

  /** Say a difference. */
  differ(...told: Told[]): void {
    const basedOn = this.version;
    this.hear({ wanted: { ...this.wanted(told), basedOn } });
  }

  wait(ms: number): void {
    const untilMs = this.nowMs + ms;
    do {
      this.nowMs = Math.min(untilMs, this.machine.nextDeadline() ?? untilMs);
      this.take();
    } while (this.nowMs < untilMs);
  }

  /** What the owner is told now, as `granted 0` or `lost 1`. */
  handOut(): string[] {
    const events = this.machine.handOut(this.nowMs);
    this.events.push(...events);
    this.take();
    return events.map((event) =>
      "holdings" in event
        ? `${event.kind} ${event.holdings.map(({ partition }) => partition).join()}`
        : event.kind,
    );
  }

  holding(partition: number): Holding {
    return this.machine.state.ledger.of({ topic: "t", partition });
  }

  commit(holding: Holding, offset = 7n): CommitOperation {
    const { topic, partition } = holding;
    const entries = [{ topic, partition, offset }];
    const begun = this.machine.commit({ entries }, [holding], this.nowMs);
    this.take();
    return begun;
  }

  /** Tokens of the commits that are out, which are answered. */
  stored(code = "NONE"): number[] {
    const commits = this.out.filter(({ request }) => request.kind === "commit");
    for (const call of commits) this.answer(call, code);
    return commits.flatMap(({ request }) => [
      ...(request as Extract<Request, { kind: "commit" }>).tokens!.values(),
    ]);
  }

  private answer(call: Call, code: string): void {
    this.out = this.out.filter((other) => other !== call);
    const reply = { kind: "committed", codes: [code], stored: new Map(), message: "" } as const;
    this.machine.handle(call, reply, this.nowMs);
    this.take();
  }

  private hear(heard: Partial<Heard>): void {
    const stream = this.out.find(({ request }) => request.kind === "attach");
    assert.ok(stream, "it has no stream");
    this.machine.hear(stream, pb.SessionResponse.fromPartial(heard), this.nowMs);
    this.take();
  }

  private wanted(told: readonly Told[]): pb.Wanted {
    this.version += 1n;
    const ranges = told.map(([partition, order, token]) => ({
      partitions: { first: partition, last: partition, firstToken: BigInt(token) },
      order,
      handoffId: 1n,
      committedOffsets: [-1n],
    }));
    const topics = [{ name: "t", ranges }];
    return pb.Wanted.fromPartial({ coordinatorEpoch: 5n, version: this.version, topics });
  }

  private take(): void {
    for (let action: Action | undefined; (action = this.machine.nextAction(this.nowMs));) {
      if (action.kind === "say") this.said.push(action.said);
      if (action.kind === "cancel") {
        const { call } = action;
        this.out = this.out.filter((other) => other !== call);
      }
      if (action.kind !== "call") continue;
      if (action.request.kind === "find") {
        this.finds.push(action.timeoutMs);
        this.machine.handle(action, { kind: "found", address: "a:1" }, this.nowMs);
      } else this.out.push(action);
    }
  }
}

function refusal(operation: CommitOperation): string {
  assert.ok(operation.isDone && operation.error instanceof StaleMember, `${operation.error}`);
  return operation.error.message;
}

test("a late commit is refused here, also if the partition was granted anew", () => {
  const c = Coordinator.attached([0, ACTIVE, 501]);
  assert.deepEqual(c.handOut(), ["granted 0"]);
  const first = c.holding(0);
  c.differ([0, DRAIN, 501]);
  assert.deepEqual(c.handOut(), ["revoking 0"]);
  c.machine.giveBack([first], { reason: "it was given back" }, c.nowMs);
  assert.match(refusal(c.commit(first)), /^nothing was sent.*t-0: it was given back/);
  c.differ([0, ACTIVE, 602]);
  assert.match(refusal(c.commit(first)), /nothing was sent/);
  assert.deepEqual(c.handOut(), ["granted 0"]);
  const second = c.holding(0);
  c.commit(second, 100n);
  assert.match(refusal(c.commit(first)), /nothing was sent/);
  assert.deepEqual(c.stored(), [602]);
  assert.equal(first.token, 501);
  assert.ok(c.machine.isValid(second, c.nowMs) && !c.machine.isValid(first, c.nowMs));
});

test("a commit of what was handed out last is none of a grant that nobody was told of", () => {
  const c = Coordinator.attached([0, ACTIVE, 501]);
  c.handOut();
  c.differ([0, ACTIVE, 602]);
  const entries = [{ topic: "t", partition: 0, offset: 7n }];
  const begun = c.machine.commit({ entries }, undefined, c.nowMs);
  c.machine.nextAction(c.nowMs);
  assert.match(refusal(begun), /it was granted anew/);
  assert.deepEqual(c.handOut(), ["lost 0", "granted 0"]);
});

test("a suspended holding commits nothing; the whole that answers resumes it", () => {
  const c = Coordinator.attached([0, ACTIVE, 10]);
  c.handOut();
  const holding = c.holding(0);
  c.wait(0.9 * LEASE_MS - 1);
  assert.ok(c.machine.isValid(holding, c.nowMs));
  assert.ok(!c.machine.takesWork(holding, c.nowMs), "from two thirds on");
  c.wait(1);
  assert.deepEqual(c.handOut(), ["suspended 0"]);
  assert.match(refusal(c.commit(holding)), /suspended/);
  assert.deepEqual(c.stored(), []);
  c.wait(2_000); // The stream counts as broken, and another one is opened.
  c.attach([0, ACTIVE, 10]);
  assert.deepEqual(c.handOut(), ["resumed 0"]);
  c.commit(holding);
  assert.deepEqual(c.stored("FENCED_TOKEN"), [10]);
});

test("a silent stream is given up after a lease; however short it is, a search has a second", () => {
  const c = new Coordinator();
  c.leaseMs = 2_000;
  c.attach([0, ACTIVE, 10]);
  c.wait(1_999);
  assert.deepEqual(c.finds, [1_000]);
  c.wait(1_000);
  assert.deepEqual(c.finds, [1_000, 1_000]);
  c.attach([0, ACTIVE, 10]);
  assert.deepEqual(c.handOut(), ["granted 0", "suspended 0", "resumed 0"]);
});

test("what is prepared for is no holding to commit for", () => {
  const c = Coordinator.attached([1, WARM, 0]);
  assert.deepEqual(c.handOut(), ["warming 1"]);
  const [warming] = c.events.flatMap((event) => ("holdings" in event ? event.holdings : []));
  assert.equal(warming!.token, 0);
  assert.match(refusal(c.commit(warming!)), /it is not assigned to this member/);
});

test("after leaving nothing is sent, and Leave ends the stream within two seconds", () => {
  const c = Coordinator.attached([0, ACTIVE, 10]);
  c.handOut();
  c.machine.close("enough", c.nowMs);
  assert.deepEqual(c.handOut(), ["lost 0", "stopping"]);
  assert.equal(c.said.at(-1)?.leave?.reason, "enough");
  assert.match(refusal(c.commit(c.holding(0))), /enough/);
  c.wait(1_999);
  assert.ok(!c.machine.isClosed);
  c.wait(1);
  assert.ok(c.machine.isClosed);
});

test("random histories: whoever is late, commits are sent for grants that last alone", () => {
  let seed = 7;
  const below = (n: number): number => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff;
    return Math.floor((seed / 0x80000000) * n);
  };
  for (let history = 0; history < 200; history++) {
    const c = Coordinator.attached();
    /** The reference: by partition, the token that lasts. */
    const lasting = new Map<number, number>();
    const kept: Holding[] = [];
    for (let step = 0, token = 1; step < 40; step++) {
      const partition = below(4);
      const current = lasting.get(partition);
      switch (below(5)) {
        case 0:
          c.differ([partition, ACTIVE, ++token]);
          lasting.set(partition, token);
          break;
        case 1:
          if (current === undefined) break;
          c.differ([partition, LOST, current]);
          lasting.delete(partition);
          break;
        case 2: {
          const given = kept[below(kept.length)];
          if (given === undefined) break;
          c.machine.giveBack([given], { reason: "it was given back" }, c.nowMs);
          if (lasting.get(given.partition) === given.token) lasting.delete(given.partition);
          break;
        }
        case 3:
          c.handOut();
          for (const event of c.events.splice(0)) {
            if (event.kind === "granted") kept.push(...event.holdings);
          }
          break;
        default: {
          const late = kept[below(kept.length)];
          if (late === undefined) break;
          const isLasting = lasting.get(late.partition) === late.token;
          c.commit(late);
          assert.deepEqual(c.stored(), isLasting ? [late.token] : [], `history ${history}`);
        }
      }
    }
  }
});
