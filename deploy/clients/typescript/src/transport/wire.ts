// The requests of `member/calls.ts` as the contract's messages, and the responses back.

import { ErrorCode } from "../generated/coordinator/v1/errors.js";
import type {
  FindCoordinatorRequest,
  FindCoordinatorResponse,
  HeartbeatRequest,
  HeartbeatResponse,
  JoinGroupRequest,
  JoinGroupResponse,
  LeaveGroupRequest,
  LeaveGroupResponse,
  OffsetCommitRequest,
  OffsetCommitResponse,
  OffsetFetchRequest,
  OffsetFetchResponse,
  SyncGroupRequest,
  SyncGroupResponse,
} from "../generated/coordinator/v1/group.js";
import type {
  Acknowledged,
  Committed,
  Fetched,
  Identity,
  Joined,
  Request,
  Result,
  Synced,
} from "../member/calls.js";
import { byTopic, nameOf, type TopicPartition } from "../partitions.js";

type Of<Kind extends Request["kind"]> = Extract<Request, { kind: Kind }>;

const PROTOCOL_TYPE = "consumer";

// --- Requests ---

export function encodeFind({ groupId }: Of<"find">): FindCoordinatorRequest {
  return { groupId };
}

export function encodeJoin(request: Of<"join">): JoinGroupRequest {
  const { member, protocols, sessionTimeoutMs, rebalanceTimeoutMs, clientId, reason } = request;
  return {
    groupId: member.groupId,
    sessionTimeoutMs,
    rebalanceTimeoutMs,
    memberId: member.memberId,
    groupInstanceId: member.instanceId,
    protocolType: PROTOCOL_TYPE,
    protocols: [...protocols],
    reason,
    clientId,
    requireKnownMemberId: true,
  };
}

export function encodeSync({ member, protocolName, assignments }: Of<"sync">): SyncGroupRequest {
  return {
    ...named(member),
    protocolType: PROTOCOL_TYPE,
    protocolName,
    assignments: [...assignments],
  };
}

export function encodeBeat({ member }: Of<"beat">): HeartbeatRequest {
  return named(member);
}

export function encodeLeave({ member, reason }: Of<"leave">): LeaveGroupRequest {
  const { groupId, memberId, instanceId } = member;
  return { groupId, members: [{ memberId, groupInstanceId: instanceId, reason }] };
}

export function encodeCommit({ member, commit, tokens }: Of<"commit">): OffsetCommitRequest {
  const topics = [...byTopic(commit.entries)].map(([name, entries]) => ({
    name,
    partitions: entries.map(({ topic, partition, offset, metadata, expected }) => ({
      partitionIndex: partition,
      committedOffset: offset,
      committedLeaderEpoch: -1,
      committedMetadata: metadata ?? "",
      expectedCommittedOffset: expected,
      token: tokenOf(tokens, { topic, partition }),
    })),
  }));
  return {
    ...named(member),
    topics,
    atomic: commit.atomic ?? false,
    manifest: Buffer.from(commit.manifest ?? []),
    requiresEmptyGroup: false,
  };
}

export function encodeFetch({ groupId, partitions }: Of<"fetch">): OffsetFetchRequest {
  const topics = [...byTopic(partitions.values())].map(([name, found]) => ({
    name,
    partitionIndexes: found.map(({ partition }) => partition),
  }));
  return { groupId, topics, requireStable: true };
}

function tokenOf(
  tokens: ReadonlyMap<string, number> | undefined,
  partition: TopicPartition,
): bigint | undefined {
  const token = tokens?.get(nameOf(partition));
  return token === undefined ? undefined : BigInt(token);
}

function named({ groupId, generation, memberId, instanceId }: Identity): HeartbeatRequest {
  return { groupId, generationId: generation, memberId, groupInstanceId: instanceId };
}

// --- Responses ---

export function decodeFound(response: FindCoordinatorResponse): Result {
  const { errorCode, errorMessage, host, port } = response;
  return errorCode === ErrorCode.NONE
    ? { kind: "found", address: host !== "" && port > 0 ? `${host}:${port}` : "" }
    : { kind: "unreachable", detail: `${codeName(errorCode)}: ${errorMessage}` };
}

export function decodeJoined(response: JoinGroupResponse): Joined {
  return {
    kind: "joined",
    ...verdict(response),
    memberId: response.memberId,
    generation: response.generationId,
    leader: response.leader,
    protocolName: response.protocolName ?? "",
    members: response.members.map(({ memberId, groupInstanceId, metadata }) => ({
      memberId,
      instanceId: groupInstanceId,
      metadata: Buffer.from(metadata),
    })),
    skipAssignment: response.skipAssignment,
  };
}

export function decodeSynced(response: SyncGroupResponse): Synced {
  return { kind: "synced", ...verdict(response), assignment: Buffer.from(response.assignment) };
}

export function decodeAcknowledged(response: HeartbeatResponse | LeaveGroupResponse): Acknowledged {
  return { kind: "acknowledged", ...verdict(response) };
}

export function decodeCommitted(response: OffsetCommitResponse): Committed {
  const found = response.topics.flatMap(({ name, partitions }) =>
    partitions.map((each) => ({
      name: nameOf({ topic: name, partition: each.partitionIndex }),
      code: codeName(each.errorCode),
      offset: each.committedOffset,
    })),
  );
  const mismatched = found.filter(({ code }) => code === "OFFSET_MISMATCH");
  return {
    kind: "committed",
    codes: [...new Set(found.map(({ code }) => code))],
    stored: new Map(mismatched.map(({ name, offset }) => [name, offset])),
    message: response.errorMessage,
  };
}

export function decodeFetched(response: OffsetFetchResponse): Fetched {
  const offsets = response.topics.flatMap(({ name, partitions }) =>
    partitions.map(({ partitionIndex, committedOffset }): [string, bigint] => [
      nameOf({ topic: name, partition: partitionIndex }),
      committedOffset,
    ]),
  );
  return { kind: "fetched", ...verdict(response), offsets: new Map(offsets) };
}

/** An error code's name; of an unknown one, its number. */
function codeName(code: ErrorCode): string {
  return ErrorCode[code] ?? `${code}`;
}

function verdict(response: { errorCode: ErrorCode; errorMessage: string }) {
  return { code: codeName(response.errorCode), message: response.errorMessage };
}
