// The range assignor: each topic is cut into consecutive runs, one for each member that reads it.
//
// All members of a group must come to the same division whoever of them leads, or partitions would
// move with every new leader. So the order of the members is Kafka's: static ones by their instance
// id first, then the others by their member id.

import type { TopicPartition } from "./consumerProtocol.js";

export interface Subscriber {
  readonly memberId: string;
  readonly instanceId: string | undefined;
  readonly topics: readonly string[];
}

/**
 * Partitions by member id; every subscriber has an entry.
 *
 * @param partitionCounts topic to its number of partitions; other topics are nobody's.
 */
export function assignRanges(
  subscribers: readonly Subscriber[],
  partitionCounts: ReadonlyMap<string, number>,
): Map<string, TopicPartition[]> {
  const shares = new Map<string, TopicPartition[]>();
  for (const { memberId } of subscribers) shares.set(memberId, []);
  const inOrder = [...subscribers].sort(compare);
  for (const [topic, count] of partitionCounts) {
    const readers = inOrder.filter((subscriber) => subscriber.topics.includes(topic));
    const shorter = Math.floor(count / readers.length);
    const longerRuns = count % readers.length;
    let partition = 0;
    readers.forEach(({ memberId }, index) => {
      const end = partition + shorter + (index < longerRuns ? 1 : 0);
      for (; partition < end; partition++) shares.get(memberId)?.push({ topic, partition });
    });
  }
  return shares;
}

function compare(a: Subscriber, b: Subscriber): number {
  if (a.instanceId !== undefined && b.instanceId !== undefined) {
    return a.instanceId < b.instanceId ? -1 : 1;
  }
  if (a.instanceId !== undefined) return -1;
  if (b.instanceId !== undefined) return 1;
  return a.memberId < b.memberId ? -1 : 1;
}
