// Partitions that a member had rather not have, given to somebody else if there is somebody.
//
// It is a wish, weaker than that every partition has an owner, and stronger than balance: whoever
// takes the partition may have one more than its share until the wish has passed. A partition does
// not move twice for it: if balance takes an unwanted partition from an owner that may keep it, the
// owner gives another one in exchange. Source: `unwanted.py`.

import { nameOf, sorted, type TopicPartition } from "../partitions.js";
import { inMemberOrder, type Shares, type Subscriber } from "./subscriber.js";

/**
 * Move unwanted partitions to other subscribers of their topics; in place.
 *
 * @param owners member id of each partition that is held now, by name, if the assignor keeps them.
 */
export function giveElsewhere(
  shares: Shares,
  subscribers: readonly Subscriber[],
  owners: ReadonlyMap<string, string> = new Map(),
): Shares {
  const inOrder = inMemberOrder(subscribers);
  for (const giver of inOrder) {
    const mine = new Set(shares.get(giver.memberId)!.map(nameOf));
    const moving = sorted(giver.unwanted ?? []).filter((partition) => mine.has(nameOf(partition)));
    for (const partition of moving) {
      const takers = inOrder.filter((other) => wants(other, partition));
      if (takers.length === 0) continue;
      const owner = takers.find(({ memberId }) => memberId === owners.get(nameOf(partition)));
      const load = ({ memberId }: Subscriber): number => shares.get(memberId)!.length;
      const taker = owner ?? takers.reduce((a, b) => (load(b) < load(a) ? b : a));
      move(shares, partition, giver, taker);
      if (owner === undefined || load(taker) <= load(giver) + 1) continue;
      const theirs = [...shares.get(taker.memberId)!].reverse();
      const exchanged = theirs.find((each) => wants(giver, each));
      if (exchanged !== undefined) move(shares, exchanged, taker, giver);
    }
  }
  return shares;
}

function wants({ topics, unwanted = [] }: Subscriber, partition: TopicPartition): boolean {
  const name = nameOf(partition);
  return topics.includes(partition.topic) && !unwanted.some((each) => nameOf(each) === name);
}

function move(shares: Shares, moved: TopicPartition, from: Subscriber, to: Subscriber): void {
  const name = nameOf(moved);
  const left = shares.get(from.memberId)!.filter((partition) => nameOf(partition) !== name);
  shares.set(from.memberId, left);
  shares.set(to.memberId, sorted([...shares.get(to.memberId)!, moved]));
}
