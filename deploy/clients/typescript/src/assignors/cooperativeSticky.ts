// The cooperative-sticky assignor (KIP-429): as even as possible, then with as few moves as
// possible, handed over in two rounds.
//
// Members keep reading while the group rebalances, so a partition that changes its owner is
// given to nobody in the first round. Its old owner sees that it is missing, stops, and joins
// again; the second round hands it out. "Its old owner" goes by what members say they own,
// believed or not: one that missed a rebalance may be reading it until it is told.
//
// A claim is believed if it is of the newest generation and nobody else of that generation
// claims the same. Where all members read the same topics, the result is the one that the
// Python assignor computes, partition for partition. Where they differ, it is as even as that
// one (paths of hand-overs until none helps: Harvey and others, "Semi-matchings for bipartite
// graphs and load balancing"), and each leaves what the other has divided as it is.

import { nameOf, sorted, type TopicPartition } from "../partitions.js";
import { inMemberOrder, type PartitionCounts, type Shares, type Subscriber } from "./subscriber.js";
import { giveElsewhere } from "./unwanted.js";

export function assignCooperatively(
  subscribers: readonly Subscriber[],
  counts: PartitionCounts,
): Shares {
  const owners = believedOwners(subscribers);
  const { claimedBy, disputed } = claims(subscribers);
  const shares = assignStickily(subscribers, counts, owners);
  for (const [memberId, partitions] of shares) {
    const free = partitions.filter((partition) => {
      const name = nameOf(partition);
      const claimant = claimedBy.get(name) ?? memberId;
      return owners.get(name) === memberId || (claimant === memberId && !disputed.has(name));
    });
    shares.set(memberId, free);
  }
  return shares;
}

/** Who says that it owns a partition, and of which more than one say so. */
function claims(subscribers: readonly Subscriber[]): {
  claimedBy: Map<string, string>;
  disputed: Set<string>;
} {
  const claimedBy = new Map<string, string>();
  const disputed = new Set<string>();
  for (const { memberId, owned } of subscribers) {
    for (const name of owned.map(nameOf)) {
      if (claimedBy.has(name) && claimedBy.get(name) !== memberId) disputed.add(name);
      claimedBy.set(name, memberId);
    }
  }
  return { claimedBy, disputed };
}

function believedOwners(subscribers: readonly Subscriber[]): Map<string, string> {
  const newest = Math.max(-1, ...subscribers.map(({ generation }) => generation));
  const current = subscribers.filter(({ generation }) => generation === newest);
  const { claimedBy, disputed } = claims(current);
  for (const name of disputed) claimedBy.delete(name);
  return claimedBy;
}

/** A member while partitions are dealt. */
interface Taker {
  readonly memberId: string;
  readonly wanted: ReadonlySet<string>;
  readonly kept: TopicPartition[];
  readonly dealt: TopicPartition[];
}

function assignStickily(
  subscribers: readonly Subscriber[],
  counts: PartitionCounts,
  owners: ReadonlyMap<string, string>,
): Shares {
  const takers: Taker[] = inMemberOrder(subscribers).map(({ memberId, topics }) => ({
    memberId,
    wanted: new Set(topics.filter((topic) => (counts.get(topic) ?? 0) > 0)),
    kept: [],
    dealt: [],
  }));
  const byId = new Map(takers.map((taker) => [taker.memberId, taker]));
  const topics = [...new Set(takers.flatMap(({ wanted }) => [...wanted]))].sort();
  const left: TopicPartition[] = [];
  for (const topic of topics) {
    for (let partition = 0; partition < (counts.get(topic) ?? 0); partition++) {
      const owner = byId.get(owners.get(nameOf({ topic, partition })) ?? "");
      (owner?.wanted.has(topic) ? owner.kept : left).push({ topic, partition });
    }
  }
  const wishesAreEqual = takers.every(({ wanted }) => wanted.size === topics.length);
  if (wishesAreEqual) shareEqually(takers, left, counts);
  else shareAmongSubscribers(takers, left);
  const shares: Shares = new Map(
    takers.map(({ memberId, kept, dealt }) => [memberId, sorted([...kept, ...dealt])]),
  );
  return giveElsewhere(shares, subscribers, owners);
}

/** Keep what is within a member's fair part of its topic, then what is least beyond it. */
function sortByFairPart(kept: TopicPartition[], members: number, counts: PartitionCounts): void {
  const heldOf = new Map<string, number>();
  const ranked = kept.map((partition) => {
    const held = (heldOf.get(partition.topic) ?? 0) + 1;
    heldOf.set(partition.topic, held);
    return { partition, beyond: held * members - (counts.get(partition.topic) ?? 0) };
  });
  ranked.sort((one, other) => one.beyond - other.beyond);
  kept.splice(0, kept.length, ...ranked.map(({ partition }) => partition));
}

/** Everybody wants everything: keep up to the quota, deal the rest in a circle. */
function shareEqually(
  takers: readonly Taker[],
  left: TopicPartition[],
  counts: PartitionCounts,
): void {
  const count = left.length + takers.reduce((sum, { kept }) => sum + kept.length, 0);
  const least = Math.floor(count / takers.length);
  let oneMore = count % takers.length;
  for (const { kept } of takers) {
    if (kept.length <= least) continue;
    const quota = oneMore > 0 ? least + 1 : least;
    if (oneMore > 0) oneMore--;
    if (kept.length > quota) sortByFairPart(kept, takers.length, counts);
    left.push(...kept.splice(quota));
  }
  const inOrder = sorted(left);
  const atMostLeast = takers.filter(({ kept }) => kept.length <= least);
  let next = 0;
  for (let lacking = atMostLeast; lacking.length > 0;) {
    lacking = lacking.filter(({ kept, dealt }) => kept.length + dealt.length < least);
    for (const taker of lacking) taker.dealt.push(inOrder[next++]!);
  }
  for (const taker of atMostLeast.slice(0, oneMore)) taker.dealt.push(inOrder[next++]!);
}

/** Wishes differ: the rest goes to the least loaded, then hand-overs even it out. */
function shareAmongSubscribers(takers: readonly Taker[], left: readonly TopicPartition[]): void {
  const readers = (topic: string): Taker[] => takers.filter(({ wanted }) => wanted.has(topic));
  const rarestFirst = [...left].sort((a, b) => readers(a.topic).length - readers(b.topic).length);
  for (const partition of rarestFirst) {
    const [first, ...others] = readers(partition.topic);
    const lightest = others.reduce((a, b) => (load(b) < load(a) ? b : a), first!);
    lightest.dealt.push(partition);
  }
  // First only with what was dealt; what was claimed moves only if that was not enough.
  while (handOver(takers, ({ dealt }) => dealt));
  for (const taker of takers) taker.dealt.push(...taker.kept.splice(0));
  while (handOver(takers, ({ dealt }) => dealt));
}

function load({ kept, dealt }: Taker): number {
  return kept.length + dealt.length;
}

/**
 * Lower the load of one member by 1 and raise that of one with at least 2 less, directly or
 * through others. False if no path does, so that the loads are as even as they can be.
 */
function handOver(takers: readonly Taker[], movable: (taker: Taker) => TopicPartition[]): boolean {
  for (const root of [...takers].sort((a, b) => load(a) - load(b))) {
    const steps = new Map<Taker, { topic: string; taker: Taker }>();
    const front = [root];
    for (const taker of front) {
      for (const giver of takers) {
        if (giver === root || steps.has(giver)) continue;
        const given = movable(giver).find(({ topic }) => taker.wanted.has(topic));
        if (given === undefined) continue;
        steps.set(giver, { topic: given.topic, taker });
        front.push(giver);
        if (load(giver) < load(root) + 2) continue;
        for (let from = giver; from !== root;) {
          const step = steps.get(from)!;
          const at = movable(from).findIndex(({ topic }) => topic === step.topic);
          movable(step.taker).push(...movable(from).splice(at, 1));
          from = step.taker;
        }
        return true;
      }
    }
  }
  return false;
}
