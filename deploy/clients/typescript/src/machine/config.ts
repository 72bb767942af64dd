// What a member's machine is set up with.

import type { AssignorName } from "../assignors/index.js";

export interface MemberConfig {
  readonly groupId: string;
  /** Topic to its number of partitions, which counts while this member leads. */
  readonly topics: ReadonlyMap<string, number>;
  /** Names of those the member can follow, best first. */
  readonly assignors: readonly AssignorName[];
  /** Used where the group refuses the others, since its members follow this one. */
  readonly fallback?: AssignorName | undefined;
  readonly clientId: string;
  /** Makes the member static: restarted within its session it takes its place back. */
  readonly instanceId?: string | undefined;
  readonly sessionTimeoutMs: number;
  readonly rebalanceTimeoutMs: number;
  readonly heartbeatIntervalMs: number;
}
