// The range assignor: each topic is cut into consecutive runs, one for each member that reads it.

import { inMemberOrder, type PartitionCounts, type Shares, type Subscriber } from "./subscriber.js";
import { giveElsewhere } from "./unwanted.js";

export function assignRanges(
  subscribers: readonly Subscriber[],
  partitionCounts: PartitionCounts,
): Shares {
  const shares: Shares = new Map(subscribers.map(({ memberId }) => [memberId, []]));
  const inOrder = inMemberOrder(subscribers);
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
  return giveElsewhere(shares, subscribers);
}
