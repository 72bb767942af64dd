// What a member's machine and its driver exchange: requests, replies, failures and actions. No
// transport is known here. Of calls `transport/wire.ts` alone knows the contract's messages; those
// of a session's stream are said and heard as they are, since ts-proto makes them plain values.

import type { SessionRequest, SessionResponse } from "../generated/coordinator/v1/session.js";
import type { Partitions, TopicPartition } from "../partitions.js";

/** Who calls: the coordinator compares the generation. */
export interface Identity {
  readonly groupId: string;
  readonly generation: number;
  readonly memberId: string;
  readonly instanceId: string | undefined;
}

/** Progress of one partition. */
export interface CommitEntry extends TopicPartition {
  /** The next offset to read. */
  readonly offset: bigint;
  readonly metadata?: string | undefined;
  /** The offset that must be stored now; -1n: none. */
  readonly expected?: bigint | undefined;
}

export interface Commit {
  readonly entries: readonly CommitEntry[];
  /** All partitions or none. */
  readonly atomic?: boolean | undefined;
  /** Stored with the group, 64 KiB at most. */
  readonly manifest?: Uint8Array | undefined;
}

export type Request =
  | { readonly kind: "find"; readonly groupId: string; readonly address: string }
  | {
      readonly kind: "join";
      readonly member: Identity;
      readonly protocols: readonly { readonly name: string; readonly metadata: Buffer }[];
      readonly sessionTimeoutMs: number;
      readonly rebalanceTimeoutMs: number;
      readonly clientId: string;
      readonly reason: string;
    }
  | {
      readonly kind: "sync";
      readonly member: Identity;
      readonly protocolName: string;
      /** Empty but from the leader. */
      readonly assignments: readonly { readonly memberId: string; readonly assignment: Buffer }[];
    }
  | { readonly kind: "beat"; readonly member: Identity }
  | { readonly kind: "leave"; readonly member: Identity; readonly reason: string }
  | {
      readonly kind: "commit";
      readonly member: Identity;
      readonly commit: Commit;
      /** In a session group: of the holdings that it counts for, by partition's name. */
      readonly tokens?: ReadonlyMap<string, number>;
    }
  | { readonly kind: "fetch"; readonly groupId: string; readonly partitions: Partitions }
  /** Open the stream of a session, which begins with this; what is heard on it comes beside. */
  | { readonly kind: "attach"; readonly said: SessionRequest };

/** What the coordinator says on the stream of a session. */
export type Heard = SessionResponse;

interface Verdict {
  /** The name of an error code, or the number of an unknown one. */
  readonly code: string;
  readonly message: string;
}

export interface JoinedMember {
  readonly memberId: string;
  readonly instanceId: string | undefined;
  readonly metadata: Buffer;
}

export interface Joined extends Verdict {
  readonly kind: "joined";
  readonly memberId: string;
  readonly generation: number;
  readonly leader: string;
  readonly protocolName: string;
  /** Only the leader is given them. */
  readonly members: readonly JoinedMember[];
  readonly skipAssignment: boolean;
}

export interface Synced extends Verdict {
  readonly kind: "synced";
  readonly assignment: Buffer;
}

/** The answer to a heartbeat or a leave. */
export interface Acknowledged extends Verdict {
  readonly kind: "acknowledged";
}

export interface Committed {
  readonly kind: "committed";
  /** The error codes of its partitions. */
  readonly codes: readonly string[];
  /** What is stored of partitions whose expected offset did not match, by name. */
  readonly stored: ReadonlyMap<string, bigint>;
  readonly message: string;
}

export interface Fetched extends Verdict {
  readonly kind: "fetched";
  /** By partition's name; -1n: nothing is stored. */
  readonly offsets: ReadonlyMap<string, bigint>;
}

export type Reply =
  | { readonly kind: "found"; readonly address: string }
  | Joined
  | Synced
  | Acknowledged
  | Committed
  | Fetched
  /** The coordinator has ended the stream of a session. */
  | { readonly kind: "ended" };

/** A call without a reply. */
export type Failure =
  /** No answer came, or the connection broke. The request may have been carried out. */
  | { readonly kind: "unreachable"; readonly detail: string }
  /** An overloaded or stopping coordinator dropped the call: ask it again after a pause. */
  | { readonly kind: "dropped"; readonly detail: string }
  /** No room, and when to try again. */
  | { readonly kind: "no room"; readonly detail: string; readonly afterMs: number }
  /** The coordinator refuses the caller, or the request as it is; `code` is gRPC's. */
  | { readonly kind: "refused"; readonly detail: string; readonly code: string }
  /** The call could not be made: a bug. Its owner is told. */
  | { readonly kind: "broken"; readonly error: Error };

export type Result = Reply | Failure;

/** One attempt to be made. Compared by identity. */
export interface Call {
  readonly kind: "call";
  readonly request: Request;
  /** Undefined: it may last for any time. */
  readonly timeoutMs: number | undefined;
  /** The number of the connection it is made on. */
  readonly connection: number;
}

export type Action =
  | Call
  /** Said on the stream of the session; dropped if that has ended. */
  | { readonly kind: "say"; readonly said: SessionRequest }
  /** Its answer is not needed any more. */
  | { readonly kind: "cancel"; readonly call: Call }
  /** Close the connection; calls on it fail as unreachable. */
  | { readonly kind: "hang up" }
  | { readonly kind: "warn"; readonly text: string };

/** What an answer leaves to do. */
export type Next = "go on" | "pause" | "find the coordinator";

/** Codes of a node that does not coordinate the group, or not any more. */
export const ELSEWHERE: ReadonlySet<string> = new Set([
  "NOT_COORDINATOR",
  "COORDINATOR_NOT_AVAILABLE",
]);
