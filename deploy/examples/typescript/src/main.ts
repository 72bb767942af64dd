// A worker: counts through its partitions, a row every few milliseconds, and commits where it is.
//
// What happens to it is printed as a line of JSON each. SIGTERM and SIGINT have it finish what it
// has begun, commit and leave.

import { parseArgs } from "node:util";
import { isServiceError, Refused } from "./coordinator.js";
import { Member, type Work } from "./member.js";
import { type Holding, NotHeld, type Progress } from "./offsets.js";

const { values } = parseArgs({
  options: {
    bootstrap: { type: "string", default: "127.0.0.1:7400" },
    group: { type: "string", default: "billing" },
    topic: { type: "string", default: "invoices" },
    partitions: { type: "string", default: "12" },
    "client-id": { type: "string", default: "typescript" },
    "instance-id": { type: "string" },
    "session-timeout-ms": { type: "string", default: "10000" },
    "rebalance-timeout-ms": { type: "string", default: "30000" },
    "heartbeat-interval-ms": { type: "string", default: "1000" },
    "row-ms": { type: "string", default: "100" },
  },
});

function say(event: string, details: object = {}): void {
  console.log(JSON.stringify({ event, ...details }));
}

type Rows = ReadonlyMap<number, Progress>;

/** Knows the next row of each partition. A row is worked on by counting it. */
class Counting implements Work {
  private next: Rows = new Map();
  private member: Member | undefined;
  private committing: Promise<void> | undefined;

  assigned(partitions: readonly Holding[], member: Member): void {
    this.member = member;
    this.next = new Map(
      partitions.map((holding) => [
        holding.partition,
        { holding, offset: holding.offset < 0n ? 0n : holding.offset },
      ]),
    );
    say("assigned", {
      generation: member.generationId,
      leader: member.isLeader,
      offsets: printable(this.next),
    });
  }

  async revoked(): Promise<void> {
    const done = this.next;
    this.next = new Map();
    await this.committing; // Of two commits under way at once, the older could end up on top.
    await this.commit(done);
    say("revoked", { offsets: printable(done) });
  }

  lost(reason: string): void {
    this.next = new Map();
    say("lost", { reason });
  }

  /** Work on one row of each partition and commit, if the last commit has come back. */
  step(): void {
    if (this.committing !== undefined || this.next.size === 0) return;
    this.next = new Map(
      [...this.next].map(([partition, { holding, offset }]) => [
        partition,
        { holding, offset: offset + 1n },
      ]),
    );
    this.committing = this.commit(this.next).finally(() => (this.committing = undefined));
  }

  private async commit(rows: Rows): Promise<void> {
    if (rows.size === 0) return;
    try {
      await this.member?.commit([...rows.values()]);
    } catch (error) {
      const isAnswer = error instanceof Refused || error instanceof NotHeld;
      if (!isAnswer && !isServiceError(error)) throw error;
      // The next heartbeat tells the member what this means. The rows are worked on again by
      // whoever has the partition then.
      say("not committed", { reason: error.message });
    }
  }
}

function printable(rows: Rows): Record<string, number> {
  return Object.fromEntries([...rows].map(([partition, { offset }]) => [partition, Number(offset)]));
}

const work = new Counting();
const member = new Member(
  {
    bootstrap: values.bootstrap.split(","),
    groupId: values.group,
    topics: new Map([[values.topic, Number(values.partitions)]]),
    clientId: values["client-id"],
    instanceId: values["instance-id"],
    sessionTimeoutMs: Number(values["session-timeout-ms"]),
    rebalanceTimeoutMs: Number(values["rebalance-timeout-ms"]),
    heartbeatIntervalMs: Number(values["heartbeat-interval-ms"]),
  },
  work,
);

const stop = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => stop.abort());
const rows = setInterval(() => work.step(), Number(values["row-ms"]));
try {
  await member.run(stop.signal);
  say("left");
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  say("refused", { reason: error.message });
  process.exitCode = 1;
} finally {
  clearInterval(rows);
}
