// Declarations of a member in its subscription: counts of its topics, and partitions that somebody
// else had better take, since it has released them, or an earlier handler of them has not ended.
//
// Kafka's subscription has names of topics and no counts. Here every member declares them, and the
// leader divides the largest. They stand at the end of the user data, behind the bytes of the
// assignor that Kafka's clients read:
//
//   the assignor's own bytes | an assignment | its size int32 | mark
//
// whose partitions are the unwanted ones, and whose user data are the counts, an int32 for each
// topic of the subscription, in the order of their names. Source: `declarations.py`, whose bytes
// these are.

import { sorted, type TopicPartition } from "../partitions.js";
import { decodeAssignment, encodeAssignment, MalformedPayload } from "./consumerProtocol.js";
import type { PartitionCounts } from "./subscriber.js";

const UNWANTED_MAX = 100;
/** One that declares more would keep every leader busy, and is as one that declares nothing. */
const PARTITIONS_MAX = 1_000_000;
const MARK = Buffer.from("coordinator");
const SIZE_BYTES = 4;

export interface Declaration {
  readonly counts: PartitionCounts;
  readonly unwanted: readonly TopicPartition[];
}

/** @param counts of all topics of the subscription. */
export function encodeDeclaration({ counts, unwanted }: Declaration): Buffer {
  const userData = Buffer.alloc(4 * counts.size);
  [...counts.keys()].sort().forEach((topic, n) => userData.writeInt32BE(counts.get(topic)!, 4 * n));
  const partitions = sorted(unwanted).slice(0, UNWANTED_MAX);
  const said = encodeAssignment({ partitions, userData });
  const size = Buffer.alloc(SIZE_BYTES);
  size.writeInt32BE(said.length);
  return Buffer.concat([said, size, MARK]);
}

/** The declaration at the end of user data; undefined: there is none, or it is malformed. */
export function readDeclaration(
  topics: readonly string[],
  userData: Buffer | undefined,
): Declaration | undefined {
  const end = (userData?.length ?? 0) - MARK.length - SIZE_BYTES;
  if (userData === undefined || end < 0) return undefined;
  if (!userData.subarray(end + SIZE_BYTES).equals(MARK)) return undefined;
  const said = userData.subarray(Math.max(0, end - userData.readInt32BE(end)), end);
  try {
    const { partitions, userData: packed } = decodeAssignment(said);
    const names = [...new Set(topics)].sort();
    if (packed?.length !== 4 * names.length || partitions.length > UNWANTED_MAX) return undefined;
    const counts = new Map(names.map((topic, n) => [topic, packed.readInt32BE(4 * n)]));
    const all = [...counts.values()].reduce((sum, count) => sum + count, 0);
    const isSound = [...counts.values()].every((count) => count >= 0) && all <= PARTITIONS_MAX;
    return isSound ? { counts, unwanted: partitions } : undefined;
  } catch (error) {
    if (error instanceof MalformedPayload) return undefined;
    throw error;
  }
}

/** Of each topic the largest number that a member declares. */
export function largestCounts(declared: Iterable<Declaration>): Map<string, number> {
  const largest = new Map<string, number>();
  for (const { counts } of declared) {
    for (const [topic, n] of counts) largest.set(topic, Math.max(n, largest.get(topic) ?? 0));
  }
  return largest;
}

/**
 * Sentences on topics that members count differently, or that nobody counts.
 *
 * @param declared by the member's name.
 * @param undeclared topics of the members that declare nothing.
 */
export function differences(
  declared: ReadonlyMap<string, Declaration>,
  undeclared: ReadonlyMap<string, readonly string[]>,
): string[] {
  const byTopic = new Map<string, Map<number, string[]>>();
  for (const [name, { counts }] of [...declared].sort(([a], [b]) => (a < b ? -1 : 1))) {
    for (const [topic, n] of counts) {
      const found = byTopic.get(topic) ?? new Map<number, string[]>();
      byTopic.set(topic, found.set(n, [...(found.get(n) ?? []), name]));
    }
  }
  const uncounted = [...new Set([...undeclared.values()].flat())].filter((t) => !byTopic.has(t));
  const unknown = uncounted.sort().map((topic) => {
    const who = [...undeclared]
      .filter(([, topics]) => topics.includes(topic))
      .map(([name]) => name);
    return (
      `no member declares the number of partitions of ${topic}, so none is assigned; ` +
      `subscribed: ${who.sort().join(", ")}`
    );
  });
  const different = [...byTopic].sort().flatMap(([topic, names]) => {
    if (names.size < 2) return [];
    const inOrder = [...names].sort(([a], [b]) => a - b);
    const said = inOrder.map(([n, who]) => `${n} by ${who.join(", ")}`).join(", ");
    const most = inOrder.at(-1)![0];
    return [
      `members declare different numbers of partitions of ${topic}: ${said}; ${most} are assigned`,
    ];
  });
  return [...different, ...unknown];
}
