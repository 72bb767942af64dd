// The assignors by name, and what members exchange through their leader.

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
  const shares = assign(subscribers, largestCounts(declared.values()));
  const assignments = subscribers.map(({ memberId, owned }) => {
    const partitions = shares.get(memberId) ?? [];
    const given = new Set(partitions.map(nameOf));
    const givesBack = owned.some((partition) => !given.has(nameOf(partition)));
    const userData = givesBack ? GIVES_BACK : undefined;
    return { memberId, assignment: encodeAssignment({ partitions, userData }) };
  });
  return { assignments, warnings: differences(declared, undeclared) };
}

/** The partitions of an assignment, and whether it takes some away from its own member. */
export function readAssignment(bytes: Buffer): { given: Partitions; givesBack: boolean } {
  if (bytes.length === 0) return { given: NO_PARTITIONS, givesBack: false };
  const { partitions, userData } = decodeAssignment(bytes);
  return { given: partitionsOf(partitions), givesBack: userData?.equals(GIVES_BACK) ?? false };
}
