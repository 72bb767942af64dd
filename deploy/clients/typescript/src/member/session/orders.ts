// Orders: what the coordinator wants of each partition, read from the pages of a Wanted.

import type * as pb from "../../generated/coordinator/v1/session.js";
import { byTopic, type TopicPartition } from "../../partitions.js";
import type { Held } from "./lease.js";

/** What is wanted of one partition. `token` 0: none. */
export interface Order extends TopicPartition {
  readonly token: number;
  readonly offset: bigint;
  readonly range: pb.Wanted_Range;
}

export function ordersOf(page: pb.Wanted): Order[] {
  return page.topics.flatMap(({ name, ranges }) =>
    ranges.flatMap((range) => {
      const { first = 0, last = -1, firstToken = 0n } = range.partitions ?? {};
      const token = Number(firstToken); // Tokens are below 2^53.
      return Array.from({ length: last - first + 1 }, (_, n) => ({
        topic: name,
        partition: first + n,
        token: token === 0 ? 0 : token + n,
        offset: range.committedOffsets[n] ?? -1n,
        range,
      }));
    }),
  );
}

/** What is held, as Attach and heartbeats tell it. */
export function heldTopics(held: Iterable<Held>): pb.HeldTopic[] {
  const holdings = [...held].map(({ holding }) => holding);
  return [...byTopic(holdings)].map(([name, found]) => ({
    name,
    partitions: found.map(({ partition, token }) => ({
      first: partition,
      last: partition,
      firstToken: BigInt(token),
    })),
  }));
}
