// The assignors by name, and what members exchange through their leader.

import { NO_PARTITIONS, type Partitions, partitionsOf, nameOf } from "../partitions.js";
import { decodeAssignment, decodeSubscription, encodeAssignment } from "./consumerProtocol.js";
import { assignCooperatively } from "./cooperativeSticky.js";
import { assignRanges } from "./range.js";
import type { Assign, PartitionCounts, Subscriber } from "./subscriber.js";

export const ASSIGNORS = {
  range: assignRanges,
  "cooperative-sticky": assignCooperatively,
} as const satisfies Record<string, Assign>;

export type AssignorName = keyof typeof ASSIGNORS;

/**
 * User data of an assignment that takes partitions away from its own member. Nobody has them
 * until the member has joined again. If a new process took the member's place meanwhile, it would
 * not notice that they are missing; the mark tells it to join again.
 */
const GIVES_BACK = Buffer.from("gives back");

/** True if members under these assignors keep their partitions while they join (KIP-429). */
export function isCooperative(assignors: readonly AssignorName[]): boolean {
  return assignors.every((name) => name === "cooperative-sticky");
}

/** The assignment of every member, encoded; done by the leader. */
export function shareOut(
  assignor: string,
  topics: PartitionCounts,
  members: readonly {
    readonly memberId: string;
    readonly instanceId: string | undefined;
    readonly metadata: Buffer;
  }[],
): { memberId: string; assignment: Buffer }[] {
  const assign: Assign | undefined = ASSIGNORS[assignor as AssignorName];
  if (assign === undefined)
    throw new Error(`the group chose an assignor unknown here: ${assignor}`);
  const subscribers: Subscriber[] = members.map(({ memberId, instanceId, metadata }) => ({
    ...decodeSubscription(metadata),
    memberId,
    instanceId,
  }));
  const shares = assign(subscribers, topics);
  return subscribers.map(({ memberId, owned }) => {
    const partitions = shares.get(memberId) ?? [];
    const given = new Set(partitions.map(nameOf));
    const givesBack = owned.some((partition) => !given.has(nameOf(partition)));
    return {
      memberId,
      assignment: encodeAssignment({ partitions, userData: givesBack ? GIVES_BACK : undefined }),
    };
  });
}

/** The partitions of an assignment, and whether it takes some away from its own member. */
export function readAssignment(bytes: Buffer): { given: Partitions; givesBack: boolean } {
  if (bytes.length === 0) return { given: NO_PARTITIONS, givesBack: false };
  const { partitions, userData } = decodeAssignment(bytes);
  return { given: partitionsOf(partitions), givesBack: userData?.equals(GIVES_BACK) ?? false };
}
