// What an assignor is told of each member, and the order in which it serves them.

import type { TopicPartition } from "../partitions.js";
import type { Subscription } from "./consumerProtocol.js";

export interface Subscriber extends Subscription {
  readonly memberId: string;
  readonly instanceId: string | undefined;
  /** Partitions that it had rather not have. */
  readonly unwanted?: readonly TopicPartition[];
}

/** Topic to its number of partitions. */
export type PartitionCounts = ReadonlyMap<string, number>;

/** Partitions by member id; every subscriber has an entry. */
export type Shares = Map<string, TopicPartition[]>;

/** Divides partitions among subscribers; topics without a count are nobody's. */
export type Assign = (subscribers: readonly Subscriber[], counts: PartitionCounts) => Shares;

/**
 * Kafka's order: static members by their instance id first, then the others by their member id.
 * All members of a group must come to the same division whoever of them leads, or partitions
 * would move with every new leader.
 */
export function inMemberOrder(subscribers: readonly Subscriber[]): Subscriber[] {
  return [...subscribers].sort((a, b) => {
    if (a.instanceId !== undefined && b.instanceId !== undefined) {
      return a.instanceId < b.instanceId ? -1 : 1;
    }
    if (a.instanceId !== undefined) return -1;
    if (b.instanceId !== undefined) return 1;
    return a.memberId < b.memberId ? -1 : 1;
  });
}
