// What a member's owner is told, under either protocol. Each event names its holdings.

import { describe } from "../partitions.js";
import type { Holding } from "./ledger.js";

export type MemberEvent =
  /** From now on these are this member's; with a cooperative assignor only the new ones. Never none. */
  | { readonly kind: "granted"; readonly holdings: readonly Holding[] }
  /**
   * To be given back: finish, commit and give back until the deadline (epoch milliseconds;
   * undefined: there is none), after which `lost` follows.
   */
  | {
      readonly kind: "revoking";
      readonly holdings: readonly Holding[];
      readonly deadlineMs: number | undefined;
    }
  /**
   * They belong to another member already, or may: stop at once, without a commit. In a session
   * group give them back when nothing of them runs any more. One with token 0 was only prepared
   * for, and is not to be given back.
   */
  | { readonly kind: "lost"; readonly holdings: readonly Holding[]; readonly reason: string }
  /** Session groups: they will be this member's. Prepare, and call `ready`. */
  | { readonly kind: "warming"; readonly holdings: readonly Holding[] }
  /** Session groups: no effect may leave the process until they are resumed, or lost. */
  | { readonly kind: "suspended"; readonly holdings: readonly Holding[] }
  /** They are this member's still, under the same tokens. */
  | { readonly kind: "resumed"; readonly holdings: readonly Holding[] }
  /** The member will not join again. `error`: why, if nobody asked for it. */
  | { readonly kind: "stopping"; readonly reason: string; readonly error: Error | undefined };

type Kind = MemberEvent["kind"];

/** One line for the log. */
export function eventText(event: MemberEvent, nowMs: number): string {
  if (event.kind === "stopping") return `stopping: ${event.reason}`;
  const [first] = event.holdings;
  const said = `${event.kind} ${describe(event.holdings)}`;
  switch (event.kind) {
    case "granted":
      return first!.generation < 0 ? said : `${said}, generation ${first!.generation}`;
    case "revoking":
      return event.deadlineMs === undefined
        ? said
        : `${said}, to be given back within ${event.deadlineMs - nowMs} ms`;
    case "lost":
      return `${said}: ${event.reason}`;
    default:
      return said;
  }
}

/** Events that the owner has not been given yet. */
export class EventQueue {
  private events: MemberEvent[] = [];

  get isEmpty(): boolean {
    return this.events.length === 0;
  }

  push(event: MemberEvent): void {
    this.events.push(event);
  }

  /** Push, as one event with the newest if that says the same of other holdings. */
  pushTogether(event: Exclude<MemberEvent, { kind: "stopping" }>): void {
    const last = this.events.at(-1);
    const says = (one: object): string => JSON.stringify({ ...one, holdings: [] });
    if (last === undefined || last.kind === "stopping" || says(last) !== says(event)) {
      this.events.push({ ...event, holdings: [...event.holdings] });
    } else (last.holdings as Holding[]).push(...event.holdings); // Nobody has it yet.
  }

  take(most: number): MemberEvent[] {
    return this.events.splice(0, most);
  }

  /** Drop events of these kinds. */
  unsay(...kinds: Kind[]): void {
    this.events = this.events.filter(({ kind }) => !kinds.includes(kind));
  }

  /** Remove holdings of partitions from events of these kinds. */
  withdraw(gone: ReadonlyMap<string, unknown>, ...kinds: Kind[]): void {
    this.events = this.events.flatMap((event): MemberEvent[] => {
      if (event.kind === "stopping" || !kinds.includes(event.kind)) return [event];
      const holdings = event.holdings.filter(({ name }) => !gone.has(name));
      return holdings.length > 0 ? [{ ...event, holdings }] : [];
    });
  }
}
