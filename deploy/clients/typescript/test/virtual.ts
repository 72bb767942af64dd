// A clock that jumps, and a coordinator in memory behind the worker's transport.

import { decodeAssignment, encodeAssignment } from "../src/assignors/consumerProtocol.js";
import type { Clock } from "../src/clock.js";
import type { Logger } from "../src/log.js";
import type { Call, CommitEntry, Request, Result } from "../src/member/calls.js";
import { nameOf } from "../src/partitions.js";
import type { Transport } from "../src/transport/transport.js";
import type { WorkerSettings } from "../src/settings.js";
import { Worker } from "../src/worker/worker.js";

export class VirtualClock implements Clock {
  private nowMs = 0;
  private timers: { atMs: number; work: () => void }[] = [];

  now(): number {
    return this.nowMs;
  }

  timer(ms: number, work: () => void): () => void {
    const timer = { atMs: this.nowMs + ms, work };
    this.timers.push(timer);
    return () => (this.timers = this.timers.filter((other) => other !== timer));
  }

  /** Let time pass: timers fire one after the other, and promises settle in between. */
  async advance(ms: number): Promise<void> {
    const untilMs = this.nowMs + ms;
    await settle();
    for (;;) {
      const [next] = [...this.timers].sort((a, b) => a.atMs - b.atMs);
      if (next === undefined || next.atMs > untilMs) break;
      this.timers = this.timers.filter((timer) => timer !== next);
      this.nowMs = Math.max(this.nowMs, next.atMs);
      next.work();
      await settle();
    }
    this.nowMs = untilMs;
  }
}

/** Let promises that can settle do so. */
export async function settle(): Promise<void> {
  for (let turns = 0; turns < 20; turns++) await new Promise((resolve) => setImmediate(resolve));
}

/** A group with one member, which leads; `next` is what it will be given. */
export class VirtualCoordinator implements Transport {
  isDown = false;
  readonly sent: Request[] = [];
  readonly stored = new Map<string, bigint>();
  /** Answers to requests of a kind, taken before the usual ones. */
  readonly answers = new Map<Request["kind"], (Result | Promise<Result>)[]>();
  /** What the member is given instead of what it divides, as leader. */
  given: string | undefined;
  private generation = 0;
  private readonly parked = new Map<Call, (result: Result) => void>();

  constructor(private readonly name = "t") {}

  sentOf<Kind extends Request["kind"]>(kind: Kind): Extract<Request, { kind: Kind }>[] {
    return this.sent.filter((one): one is Extract<Request, { kind: Kind }> => one.kind === kind);
  }

  /** Have the next heartbeat begin a rebalance that gives these partitions. */
  rebalance(given?: string): void {
    this.given = given;
    this.answer("beat", { kind: "acknowledged", code: "REBALANCE_IN_PROGRESS", message: "" });
  }

  answer(kind: Request["kind"], ...results: (Result | Promise<Result>)[]): void {
    this.answers.set(kind, [...(this.answers.get(kind) ?? []), ...results]);
  }

  async carryOut(call: Call): Promise<Result> {
    this.sent.push(call.request);
    await Promise.resolve();
    if (this.isDown) return { kind: "unreachable", detail: "ECONNREFUSED" };
    return this.answers.get(call.request.kind)?.shift() ?? this.usual(call.request);
  }

  cancel(call: Call): void {
    this.parked.get(call)?.({ kind: "dropped", detail: "cancelled" });
  }

  hangUp(): void {}

  say(): void {}

  private usual(request: Request): Result {
    const ok = { code: "NONE", message: "" };
    switch (request.kind) {
      case "find":
        return { kind: "found", address: request.address };
      case "join": {
        const [{ name, metadata }] = request.protocols as [{ name: string; metadata: Buffer }];
        return {
          ...ok,
          kind: "joined",
          memberId: "m",
          generation: ++this.generation,
          leader: "m",
          protocolName: name,
          members: [{ memberId: "m", instanceId: undefined, metadata }],
          skipAssignment: false,
        };
      }
      case "sync":
        return { ...ok, kind: "synced", assignment: this.assignment(request.assignments[0]) };
      case "commit":
        for (const entry of request.commit.entries) this.store(entry);
        return { kind: "committed", codes: ["NONE"], stored: new Map(), message: "" };
      case "fetch": {
        const offsets = [...request.partitions.keys()].map((name): [string, bigint] => [
          name,
          this.stored.get(name) ?? -1n,
        ]);
        return { ...ok, kind: "fetched", offsets: new Map(offsets) };
      }
      default:
        return { ...ok, kind: "acknowledged" };
    }
  }

  private store(entry: CommitEntry): void {
    this.stored.set(nameOf(entry), entry.offset);
  }

  private assignment(divided: { assignment: Buffer } | undefined): Buffer {
    if (this.given === undefined) return divided?.assignment ?? Buffer.alloc(0);
    const numbers = this.given === "" ? [] : this.given.split(",").map(Number);
    const partitions = numbers.map((partition) => ({ topic: this.name, partition }));
    const userData = divided && decodeAssignment(divided.assignment).userData;
    return encodeAssignment({ partitions, userData });
  }
}

export class Lines implements Logger {
  readonly lines: string[] = [];
  debug(): void {}
  info = (line: string): number => this.lines.push(`INFO ${line}`);
  warn = (line: string): number => this.lines.push(`WARN ${line}`);

  /** Lines that contain a text. */
  of(text: string): string[] {
    return this.lines.filter((line) => line.includes(text));
  }
}

/** A worker of the topic `t` with two partitions, its coordinator and its time. */
export function virtual(settings: Partial<WorkerSettings> = {}) {
  const clock = new VirtualClock();
  const coordinator = new VirtualCoordinator();
  const logger = new Lines();
  const worker = new Worker(
    "127.0.0.1:7400",
    "g",
    {
      topics: { t: 2 },
      sessionTimeoutMs: 4_000,
      rebalanceTimeoutMs: 6_000,
      heartbeatIntervalMs: 1_000,
      clientId: "c",
      logger,
      ...settings,
    },
    { transport: coordinator, clock, random: () => 0.5 },
  );
  return { clock, coordinator, logger, worker };
}
