// What is known of a member, whatever its protocol. The machine owns it; its protocol part changes
// it as answers say.

import type { AssignorName } from "../assignors/index.js";
import type { TopicPartition } from "../partitions.js";
import type { Action } from "./calls.js";
import { EventQueue } from "./events.js";
import { Ledger } from "./ledger.js";

export type Phase =
  /** Classic groups. */
  | "joining"
  | "syncing"
  | "stable"
  | "revoking"
  /** Session groups; `waiting`: another process of its name holds what it will inherit. */
  | "attaching"
  | "waiting"
  | "attached"
  | "stopped";

export interface MemberConfig {
  readonly groupId: string;
  readonly protocol: "classic" | "session";
  /** Topic to its number of partitions. */
  readonly topics: ReadonlyMap<string, number>;
  readonly clientId: string;

  // Classic groups.

  /** Names of those the member can follow, best first. */
  readonly assignors: readonly AssignorName[];
  /** Used where the group refuses the others, since its members follow this one. */
  readonly fallback?: AssignorName | undefined;
  /** Makes the member static: restarted within its session it takes its place back. */
  readonly instanceId?: string | undefined;
  readonly sessionTimeoutMs: number;
  readonly rebalanceTimeoutMs: number;
  readonly heartbeatIntervalMs: number;

  // Session groups.

  /** A place that is stable across restarts. */
  readonly memberName?: string | undefined;
  /** Share of the partitions, relative to the others'; 0: none. */
  readonly capacity?: number | undefined;
  /** Tells this process from another one: 16 random bytes, and when it was made. */
  readonly incarnation: { readonly id: Buffer; readonly startedAtMs: number };
}

export class MemberState {
  phase: Phase;
  memberId = "";
  generation = -1;
  isLeader = false;
  topics: ReadonlyMap<string, number>;
  failure: Error | undefined;
  readonly ledger = new Ledger();
  readonly events = new EventQueue();
  readonly warnings: string[] = [];
  /** To be carried out, in this order. */
  readonly actions: Action[] = [];
  /** An address that the coordinator named when it sent the member away. */
  movedTo: string | undefined;
  /** Partitions that the owner had rather not be assigned; asked before each join. */
  unwanted: () => Iterable<TopicPartition> = () => [];
  /** When the owner last took an event, committed, or gave something back. */
  progressMs = 0;

  constructor(readonly config: MemberConfig) {
    this.topics = config.topics;
    this.phase = config.protocol === "classic" ? "joining" : "attaching";
  }
}
