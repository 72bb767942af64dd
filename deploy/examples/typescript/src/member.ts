// A member of a group: the protocol from the first JoinGroup to LeaveGroup.
//
//   joining ──► syncing ──► stable ──► joining …                 a rebalance
//      ▲           │           │
//      └───────────┴───────────┘                                 lost, refused, expired
//
// The member is eager: it gives everything back before it joins again.

import { setTimeout as sleep } from "node:timers/promises";
import {
  decodeAssignment,
  decodeSubscribedTopics,
  encodeAssignment,
  encodeSubscription,
} from "./consumerProtocol.js";
import {
  Coordinator,
  ELSEWHERE,
  isMalformedCall,
  isServiceError,
  pause,
  Refused,
} from "./coordinator.js";
import { ErrorCode } from "./generated/coordinator/v1/errors.js";
import type {
  HeartbeatResponse,
  JoinGroupResponse,
  LeaveGroupResponse,
  SyncGroupResponse,
} from "./generated/coordinator/v1/group.js";
import { Holding, type Identity, NotHeld, Offsets, type Progress } from "./offsets.js";
import { assignRanges } from "./rangeAssignor.js";

/** What the owner of a member does with its partitions. */
export interface Work {
  /** These are the member's, to be worked on from these offsets. */
  assigned(partitions: readonly Holding[], member: Member): void;
  /** They will be somebody else's: stop, and commit what is done while it is still accepted. */
  revoked(): Promise<void>;
  /** They may be somebody else's already: stop, and forget what is not committed. */
  lost(reason: string): void;
}

export interface MemberOptions {
  readonly bootstrap: readonly string[];
  readonly groupId: string;
  /** Topic to its number of partitions, which counts while this member leads. */
  readonly topics: ReadonlyMap<string, number>;
  readonly clientId: string;
  /** Makes the member static: restarted within its session it takes its place back. */
  readonly instanceId?: string | undefined;
  readonly sessionTimeoutMs: number;
  readonly rebalanceTimeoutMs: number;
  readonly heartbeatIntervalMs: number;
}

const LEAVE_TIMEOUT_MS = 2_000;
const JOIN_GRACE_MS = 5_000;
const BEATS_A_SESSION = 4;

/** Codes after which joining again would end the same way. */
const FATAL: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.FENCED_INSTANCE_ID, // Another process has this instance id now.
  ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
  ErrorCode.GROUP_MAX_SIZE_REACHED,
  ErrorCode.INVALID_GROUP_ID,
  ErrorCode.INVALID_SESSION_TIMEOUT,
  ErrorCode.INVALID_REQUEST,
  ErrorCode.GROUP_AUTHORIZATION_FAILED,
  ErrorCode.UNSUPPORTED_VERSION,
]);

export class Member {
  private readonly coordinator: Coordinator;
  private readonly offsets: Offsets;
  private phase: "joining" | "syncing" | "stable" = "joining";
  private memberId = "";
  private generation = -1;
  private joined: JoinGroupResponse | undefined;
  private holdsPartitions = false;
  private held: ReadonlySet<Holding> = new Set();
  private lastHeardMs = 0;
  private failures = 0;

  constructor(
    private readonly options: MemberOptions,
    private readonly work: Work,
  ) {
    this.coordinator = new Coordinator(options.bootstrap, options.groupId);
    this.offsets = new Offsets(this.coordinator, options.sessionTimeoutMs);
  }

  /** True if this member computed the assignment of its generation. */
  get isLeader(): boolean {
    return this.joined !== undefined && this.joined.leader === this.memberId;
  }

  get generationId(): number {
    return this.generation;
  }

  /** Be a member until `signal` is aborted, then leave. Throws Refused if the group never will. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        try {
          if (this.phase === "joining") await this.join(signal);
          else if (this.phase === "syncing") await this.sync(signal);
          else await this.beat(signal);
          this.failures = 0;
        } catch (error) {
          if (!signal.aborted) await this.recover(error, signal);
        }
      }
      if (this.holdsPartitions) await this.handOver();
    } finally {
      this.held = new Set();
      await this.leave();
      this.coordinator.hangUp();
    }
  }

  /**
   * Store progress; returns when it is durable.
   *
   * It counts for the holdings that `assigned` handed out. The generation that is sent is the
   * newest one, so the coordinator cannot tell that a holding has ended and its partition has
   * come back: that is refused here, before each call.
   *
   * @throws NotHeld: one was given back or lost. Refused: the group has moved on. RangeError: an
   *   offset is negative.
   */
  async commit(progress: readonly Progress[]): Promise<void> {
    const negative = progress.find(({ offset }) => offset < 0n);
    if (negative !== undefined) throw new RangeError(`an offset is negative: ${negative.offset}`);
    const offsets = progress.map(({ holding: { topic, partition }, offset }) => ({
      topic,
      partition,
      offset,
    }));
    await this.offsets.commit(() => this.identityFor(progress), offsets);
  }

  // --- The phases ---

  private async join(signal: AbortSignal): Promise<void> {
    const { groupId, instanceId, clientId, sessionTimeoutMs, rebalanceTimeoutMs } = this.options;
    const request = {
      groupId,
      groupInstanceId: instanceId,
      memberId: this.memberId,
      clientId,
      sessionTimeoutMs,
      rebalanceTimeoutMs,
      protocolType: "consumer",
      protocols: [{ name: "range", metadata: encodeSubscription([...this.options.topics.keys()]) }],
      reason: "",
    };
    // Parked until everybody is there. Being parked is a sign of life: no heartbeat meanwhile.
    const response = await this.coordinator.call<JoinGroupResponse>(
      (client, ...rest) => client.joinGroup(request, ...rest),
      rebalanceTimeoutMs + JOIN_GRACE_MS,
      signal,
    );
    if (response.errorCode === ErrorCode.MEMBER_ID_REQUIRED) {
      this.memberId = response.memberId; // The second phase of the join: the same under this id.
      return;
    }
    accept(response);
    this.joined = response;
    this.memberId = response.memberId;
    this.generation = response.generationId;
    this.phase = "syncing";
  }

  private async sync(signal: AbortSignal): Promise<void> {
    const request = {
      ...this.identity(),
      protocolType: "consumer",
      protocolName: this.joined?.protocolName,
      assignments: this.isLeader && !this.joined?.skipAssignment ? this.divide() : [],
    };
    const sentAtMs = performance.now();
    const response = await this.coordinator.call<SyncGroupResponse>(
      (client, ...rest) => client.syncGroup(request, ...rest),
      this.options.rebalanceTimeoutMs + JOIN_GRACE_MS,
      signal,
    );
    accept(response);
    this.lastHeardMs = sentAtMs;
    const given = decodeAssignment(Buffer.from(response.assignment));
    const partitions = await this.offsets.fetch(this.options.groupId, given);
    this.phase = "stable";
    this.holdsPartitions = true;
    const held = partitions.map((p) => new Holding(p.topic, p.partition, p.offset));
    this.held = new Set(held);
    this.work.assigned(held, this);
  }

  private async beat(signal: AbortSignal): Promise<void> {
    if (this.failures === 0) await sleep(this.options.heartbeatIntervalMs, undefined, { signal });
    // Counted from when the last answered beat was sent, so that it ends here first.
    if (this.sessionHasEnded) {
      this.lose("no answer for a whole session");
      this.memberId = "";
    } else if ((await this.sendBeat(signal)) === ErrorCode.REBALANCE_IN_PROGRESS) {
      await this.handOver();
      this.phase = "joining";
    }
  }

  /** As leader: everyone's share, in Kafka's bytes. */
  private divide(): { memberId: string; assignment: Buffer }[] {
    const subscribers = (this.joined?.members ?? []).map((member) => ({
      memberId: member.memberId,
      instanceId: member.groupInstanceId,
      topics: decodeSubscribedTopics(Buffer.from(member.metadata)),
    }));
    return [...assignRanges(subscribers, this.options.topics)].map(([memberId, partitions]) => ({
      memberId,
      assignment: encodeAssignment(partitions),
    }));
  }

  /** Have the owner finish, and stay alive meanwhile: the others wait, and the session runs. */
  private async handOver(): Promise<void> {
    const finished = this.work.revoked().then(() => true);
    const { heartbeatIntervalMs } = this.options;
    while (!(await Promise.race([finished, sleep(heartbeatIntervalMs, false)]))) {
      await this.sendBeat();
    }
    this.holdsPartitions = false;
    this.held = new Set();
  }

  private async leave(): Promise<void> {
    const { groupId, instanceId } = this.options;
    // A static member's place is kept for the process that comes back under its instance id.
    if (this.memberId === "" || instanceId !== undefined) return;
    const members = [{ memberId: this.memberId, reason: "stopped" }];
    try {
      await this.coordinator.call<LeaveGroupResponse>(
        (client, ...rest) => client.leaveGroup({ groupId, members }, ...rest),
        LEAVE_TIMEOUT_MS,
      );
    } catch (error) {
      if (!isServiceError(error) && !(error instanceof Refused)) throw error;
      console.error(`not said goodbye, the session will end by itself: ${error.message}`);
    }
  }

  // --- Answers ---

  /** What to do about an answer that is no success; returns if the member can go on. */
  private async recover(error: unknown, signal: AbortSignal): Promise<void> {
    if (error instanceof Refused) {
      if (FATAL.has(error.code)) {
        this.lose(error.message);
        throw error;
      }
      if (error.code === ErrorCode.REBALANCE_IN_PROGRESS) {
        this.phase = "joining"; // Another rebalance began before this one was over.
        return;
      }
      if (error.code === ErrorCode.ILLEGAL_GENERATION) {
        this.lose(error.message); // The group went on without this member, which it still knows.
        return;
      }
      if (error.code === ErrorCode.UNKNOWN_MEMBER_ID) {
        this.lose(error.message);
        this.memberId = "";
        return;
      }
      if (ELSEWHERE.has(error.code)) this.coordinator.hangUp();
    } else if (!isServiceError(error) || isMalformedCall(error)) {
      throw error; // A mistake of this program.
    }
    // The membership outlives the way to it: the same request again, at the right node.
    await pause(this.failures++, signal);
  }

  private lose(reason: string): void {
    this.held = new Set();
    if (this.holdsPartitions) this.work.lost(reason);
    this.holdsPartitions = false;
    this.generation = -1;
    this.phase = "joining";
  }

  private get sessionHasEnded(): boolean {
    return performance.now() - this.lastHeardMs >= this.options.sessionTimeoutMs;
  }

  // --- Calls ---

  private identityFor(progress: readonly Progress[]): Identity {
    const ended = progress.filter(({ holding }) => !this.held.has(holding) || this.sessionHasEnded);
    if (progress.length === 0 || ended.length > 0) {
      const named = ended.map(({ holding }) => `${holding.topic}[${holding.partition}]`);
      throw new NotHeld(`nothing was sent, for this is not held: ${named.join(", ")}`);
    }
    return this.identity();
  }

  private identity(): Identity {
    const { groupId, instanceId } = this.options;
    const { generation: generationId, memberId } = this;
    return { groupId, generationId, memberId, groupInstanceId: instanceId };
  }

  /** NONE or REBALANCE_IN_PROGRESS, which are both a sign of life. */
  private async sendBeat(signal?: AbortSignal): Promise<ErrorCode> {
    const request = this.identity();
    const sentAtMs = performance.now();
    const response = await this.coordinator.call<HeartbeatResponse>(
      (client, ...rest) => client.heartbeat(request, ...rest),
      this.options.sessionTimeoutMs / BEATS_A_SESSION,
      signal,
    );
    if (response.errorCode !== ErrorCode.REBALANCE_IN_PROGRESS) accept(response);
    this.lastHeardMs = sentAtMs;
    return response.errorCode;
  }
}

function accept(response: { errorCode: ErrorCode; errorMessage: string }): void {
  if (response.errorCode !== ErrorCode.NONE) {
    throw new Refused(response.errorCode, response.errorMessage);
  }
}
