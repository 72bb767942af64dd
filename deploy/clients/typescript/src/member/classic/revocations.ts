// Revocations that are under way: partitions that a member holds on to until its owner is done.
//
// Each has a deadline of its own, which a further rebalance does not move. With a cooperative
// assignor the member takes part in rebalances meanwhile, still as the holder; one of them may
// assign a partition to it again (`returned`). Its holding ends all the same, since the owner was
// told so, and another one begins.

import { NO_PARTITIONS, type Partitions, without } from "../../partitions.js";

export class Revocations {
  /** All that are under way. */
  partitions: Partitions = NO_PARTITIONS;
  /** Those that the newest assignment gives to this member again. */
  returned: Partitions = NO_PARTITIONS;
  private readonly untilMs = new Map<string, number>();
  private readonly toldOf = new Set<string>();

  /** Those that the owner was told of. */
  get told(): Partitions {
    return new Map([...this.partitions].filter(([name]) => this.toldOf.has(name)));
  }

  begin(partitions: Partitions, untilMs: number): void {
    this.partitions = new Map([...this.partitions, ...partitions]);
    for (const name of partitions.keys()) this.untilMs.set(name, untilMs);
  }

  /** The owner is told of these. */
  handOut(holdings: Iterable<{ readonly name: string }>): void {
    for (const { name } of holdings) this.toldOf.add(name);
  }

  /** End the revocation of some; returns those that are to be held again. */
  end(partitions: Partitions): Partitions {
    this.partitions = without(this.partitions, partitions);
    for (const name of partitions.keys()) {
      this.untilMs.delete(name);
      this.toldOf.delete(name);
    }
    const returned = new Map([...this.returned].filter(([name]) => partitions.has(name)));
    this.returned = without(this.returned, partitions);
    return returned;
  }

  /** End all of them, since everything is lost. */
  endAll(): void {
    this.partitions = this.returned = NO_PARTITIONS;
    this.untilMs.clear();
    this.toldOf.clear();
  }

  overdue(nowMs: number): Partitions {
    const isOverdue = (name: string): boolean => (this.untilMs.get(name) ?? nowMs) <= nowMs;
    return new Map([...this.partitions].filter(([name]) => isOverdue(name)));
  }

  nextDeadline(): number | undefined {
    return this.untilMs.size > 0 ? Math.min(...this.untilMs.values()) : undefined;
  }
}
