// What a member's owner is told of a rebalance.

import { describe, type Partitions, without } from "../partitions.js";

export type RebalanceEvent =
  /** From now on these are this member's; with a cooperative assignor only the new ones. Never none. */
  | { readonly kind: "assigned"; readonly partitions: Partitions; readonly generation: number }
  /** To be given back: finish and commit until the deadline, after which `lost` follows. */
  | { readonly kind: "revoking"; readonly partitions: Partitions; readonly deadlineMs: number }
  /** They belong to another member already, or may. */
  | { readonly kind: "lost"; readonly partitions: Partitions; readonly reason: string }
  /** The member will not join again. */
  | { readonly kind: "stopping"; readonly reason: string };

/** One line for the log. */
export function eventText(event: RebalanceEvent, nowMs: number): string {
  switch (event.kind) {
    case "assigned":
      return `assigned ${describe(event.partitions.values())}, generation ${event.generation}`;
    case "revoking":
      return (
        `revoking ${describe(event.partitions.values())}, ` +
        `to be given back within ${event.deadlineMs - nowMs} ms`
      );
    case "lost":
      return `lost ${describe(event.partitions.values())}: ${event.reason}`;
    case "stopping":
      return `stopping: ${event.reason}`;
  }
}

type Kind = RebalanceEvent["kind"];

/** Events that the owner has not been given yet. */
export class EventQueue {
  private events: RebalanceEvent[] = [];

  get isEmpty(): boolean {
    return this.events.length === 0;
  }

  push(event: RebalanceEvent): void {
    this.events.push(event);
  }

  take(): RebalanceEvent[] {
    return this.events.splice(0);
  }

  /** Drop events of these kinds. */
  unsay(...kinds: Kind[]): void {
    this.events = this.events.filter(({ kind }) => !kinds.includes(kind));
  }

  /** Remove partitions from events of these kinds. */
  withdraw(gone: Partitions, ...kinds: Kind[]): void {
    this.events = this.events.flatMap((event): RebalanceEvent[] => {
      if (!kinds.includes(event.kind) || !("partitions" in event)) return [event];
      const left = without(event.partitions, gone);
      if (left.size === event.partitions.size) return [event];
      return left.size > 0 ? [{ ...event, partitions: left }] : [];
    });
  }
}
