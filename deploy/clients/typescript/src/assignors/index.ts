// The assignors by name, and what members exchange through their leader.

import { createHash } from "node:crypto";
import { NO_PARTITIONS, type Partitions, partitionsOf, nameOf } from "../partitions.js";
import {
  decodeAssignment,
  decodeSubscription,
  encodeAssignment,
  encodeSubscription,
  type Subscription,
} from "./consumerProtocol.js";
import { assignCooperatively } from "./cooperativeSticky.js";
import {
  type Declaration,
  differences,
  encodeDeclaration,
  largestCounts,
  readDeclaration,
} from "./declarations.js";
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

/**
 * Prefix of the user data of other assignments: before a digest of the counts that the leader knew
 * from this member, and one of those that it has divided.
 */
const COUNTS = Buffer.from("topics ");
const DIGEST_BYTES = 8;

/** True if members under these assignors keep their partitions while they join (KIP-429). */
export function isCooperative(assignors: readonly AssignorName[]): boolean {
  return assignors.every((name) => name === "cooperative-sticky");
}

/** Work of a leader: encoded assignments, and what people should know of it. */
export interface Division {
  readonly assignments: readonly { memberId: string; assignment: Buffer }[];
  readonly warnings: readonly string[];
}

/** A member's subscription under an assignor, with what it declares at the end of the user data. */
export function subscribe(assignor: AssignorName, held: Subscription, said: Declaration): Buffer {
  const generation = Buffer.alloc(4);
  generation.writeInt32BE(held.generation);
  const own = assignor === "cooperative-sticky" ? [generation] : [];
  return encodeSubscription({
    ...held,
    userData: Buffer.concat([...own, encodeDeclaration(said)]),
  });
}

/**
 * Divide the largest numbers of partitions that members declare; done by the leader.
 *
 * @param topics the leader's own, which may have changed since it joined.
 */
export function shareOut(
  assignor: string,
  leaderId: string,
  topics: PartitionCounts,
  members: readonly {
    readonly memberId: string;
    readonly instanceId: string | undefined;
    readonly metadata: Buffer;
  }[],
): Division {
  const assign: Assign | undefined = ASSIGNORS[assignor as AssignorName];
  if (assign === undefined)
    throw new Error(`the group chose an assignor unknown here: ${assignor}`);
  const declared = new Map<string, Declaration>();
  const undeclared = new Map<string, readonly string[]>();
  const subscribers = members.map(({ memberId, instanceId, metadata }): Subscriber => {
    const read = decodeSubscription(metadata);
    const said = readDeclaration(read.topics, read.userData);
    const unwanted = said?.unwanted ?? [];
    const counts = memberId === leaderId ? topics : said?.counts;
    const name = instanceId ?? memberId;
    if (counts === undefined) undeclared.set(name, read.topics);
    else declared.set(name, { counts, unwanted });
    return { ...read, memberId, instanceId, unwanted };
  });
  const counts = largestCounts(declared.values());
  const shares = assign(subscribers, counts);
  const assignments = subscribers.map(({ memberId, instanceId, owned }) => {
    const partitions = shares.get(memberId) ?? [];
    const given = new Set(partitions.map(nameOf));
    const givesBack = owned.some((partition) => !given.has(nameOf(partition)));
    const known = declared.get(instanceId ?? memberId)?.counts;
    const divided = known && new Map([...known.keys()].map((topic) => [topic, counts.get(topic)!]));
    const said = known && Buffer.concat([COUNTS, digestOf(known), digestOf(divided!)]);
    const userData = givesBack ? GIVES_BACK : said;
    return { memberId, assignment: encodeAssignment({ partitions, userData }) };
  });
  return { assignments, warnings: differences(declared, undeclared) };
}

export interface ReadAssignment {
  readonly given: Partitions;
  /** It takes some away from its own member. */
  readonly givesBack: boolean;
  /**
   * False if a leader that knew these counts might have divided others than it did. True if it was
   * told of them, or has divided them; and if neither is known.
   */
  knows(topics: PartitionCounts): boolean;
}

export function readAssignment(bytes: Buffer): ReadAssignment {
  if (bytes.length === 0) return { given: NO_PARTITIONS, givesBack: false, knows: () => true };
  const { partitions, userData = Buffer.alloc(0) } = decodeAssignment(bytes);
  const isCounts = userData.subarray(0, COUNTS.length).equals(COUNTS);
  const told = userData.subarray(COUNTS.length, COUNTS.length + DIGEST_BYTES);
  const divided = userData.subarray(COUNTS.length + DIGEST_BYTES);
  return {
    given: partitionsOf(partitions),
    givesBack: userData.equals(GIVES_BACK),
    knows: (topics) => !isCounts || [told, divided].some((one) => one.equals(digestOf(topics))),
  };
}

function digestOf(topics: PartitionCounts): Buffer {
  const said = [...topics].sort(([a], [b]) => (a < b ? -1 : 1));
  const hash = createHash("sha256").update(said.map(([name, n]) => `${name}\0${n}\0`).join(""));
  return hash.digest().subarray(0, DIGEST_BYTES);
}
