// A member's state in its group: its phase, its requests, and what answers change.
//
//   joining ──► syncing ──► stable ──► revoking ──► joining      a rebalance
//      ▲           │           │           │
//      └───────────┴───────────┴───────────┘                     lost, fenced off, expired
//   any ──► stopped                                              closed, or refused for good
//
// With an eager assignor a member gives everything back before it joins again. With a cooperative
// one it joins with what it has, and then gives back what the new assignment takes away, each as
// soon as its owner has finished with it (`revocations.ts`).
//
// The owner learns of changes later, from `handOut`. Partitions that it was never told of are
// given back without asking it. Those it did not give back in time it is told of as lost.

import { type AssignorName, isCooperative, readAssignment, shareOut } from "../assignors/index.js";
import { encodeSubscription } from "../assignors/consumerProtocol.js";
import { FatalError } from "../errors.js";
import { NO_PARTITIONS, type Partitions, union, without } from "../partitions.js";
import {
  type Acknowledged,
  ELSEWHERE,
  type Identity,
  type Joined,
  type Next,
  type Request,
  type Synced,
} from "./calls.js";
import type { MemberConfig } from "./config.js";
import { EventQueue, type RebalanceEvent } from "./events.js";
import { Holdings, MEMBERSHIP } from "./holdings.js";
import { Revocations } from "./revocations.js";

export type Phase = "joining" | "syncing" | "stable" | "revoking" | "stopped";

/** Codes after which joining again would end the same way. */
const FATAL: ReadonlySet<string> = new Set([
  "FENCED_INSTANCE_ID", // Another process has this instance id now.
  "INCONSISTENT_GROUP_PROTOCOL",
  "GROUP_MAX_SIZE_REACHED",
  "INVALID_GROUP_ID",
  "INVALID_SESSION_TIMEOUT",
  "INVALID_REQUEST",
  "GROUP_AUTHORIZATION_FAILED",
  "UNSUPPORTED_VERSION",
]);

export class Membership {
  phase: Phase = "joining";
  memberId = "";
  generation = -1;
  isLeader = false;
  /** What the member has, without what is being revoked. */
  assignment: Partitions = NO_PARTITIONS;
  topics: ReadonlyMap<string, number>;
  readonly events = new EventQueue();
  warnings: string[] = [];
  failure: Error | undefined;
  readonly holdings = new Holdings();
  private assignors: readonly AssignorName[];
  readonly revocations = new Revocations();
  /** True if the member takes no more partitions: it subscribes to nothing. */
  isDraining = false;
  /** True if partitions were given back that the join under way says are held. */
  mustJoinAgain = false;
  private claimed: Partitions = NO_PARTITIONS;
  private lastHeardMs = 0;
  private lastJoin: Joined | undefined;
  private reason = "";

  constructor(readonly config: MemberConfig) {
    this.assignors = config.assignors;
    this.topics = config.topics;
  }

  // --- Requests ---

  identity(): Identity {
    const { groupId, instanceId } = this.config;
    return { groupId, generation: this.generation, memberId: this.memberId, instanceId };
  }

  join(): Request {
    const { sessionTimeoutMs, rebalanceTimeoutMs, clientId } = this.config;
    this.mustJoinAgain = false;
    this.claimed = this.held;
    const metadata = encodeSubscription({
      topics: this.isDraining ? [] : [...this.topics.keys()],
      owned: [...this.claimed.values()],
      generation: this.generation,
    });
    return {
      kind: "join",
      member: this.identity(),
      protocols: this.assignors.map((name) => ({ name, metadata })),
      sessionTimeoutMs,
      rebalanceTimeoutMs,
      clientId,
      reason: this.reason,
    };
  }

  /** The leader's has the assignments of all members. */
  sync(): Request {
    const { protocolName = "", members = [], skipAssignment = false } = this.lastJoin ?? {};
    const assignments =
      this.isLeader && !skipAssignment ? shareOut(protocolName, this.topics, members) : [];
    return { kind: "sync", member: this.identity(), protocolName, assignments };
  }

  beat(): Request {
    return { kind: "beat", member: this.identity() };
  }

  /** Undefined if the group does not know the member. */
  leave(reason: string): Request | undefined {
    return this.memberId === ""
      ? undefined
      : { kind: "leave", member: this.identity(), reason: reason.slice(0, 255) };
  }

  // --- Answers ---

  joined(reply: Joined): Next {
    if (this.phase !== "joining") return "go on";
    if (reply.code === "MEMBER_ID_REQUIRED") {
      this.memberId = reply.memberId;
      return "go on";
    }
    if (reply.code !== "NONE") return this.refused(reply.code, reply.message);
    this.memberId = reply.memberId;
    this.generation = reply.generation;
    this.isLeader = reply.leader === reply.memberId;
    this.lastJoin = reply;
    this.reason = "";
    this.phase = "syncing";
    return "go on";
  }

  /** @param sentAtMs when the request was sent: the session is counted from then. */
  synced(reply: Synced, sentAtMs: number, nowMs: number): Next {
    if (this.phase !== "syncing") return "go on";
    if (reply.code !== "NONE") return this.refused(reply.code, reply.message);
    this.lastHeardMs = sentAtMs;
    const { given, givesBack } = readAssignment(reply.assignment);
    const revoked = this.stillRevoked(given);
    const taken = without(this.assignment, given);
    const added = without(without(given, this.assignment), revoked);
    const freed = without(without(without(this.claimed, given), this.assignment), revoked);
    this.phase = revoked.size > 0 ? "revoking" : "stable";
    this.assignment = without(given, revoked);
    if (!this.isCooperative) this.events.unsay("assigned");
    if (added.size > 0) {
      this.events.push({ kind: "assigned", partitions: added, generation: this.generation });
    }
    const begun = [...added.values()];
    this.holdings.begin(
      this.holdings.areOfAMember ? begun : [...begun, MEMBERSHIP],
      this.generation,
    );
    // Only a cooperative assignor gets here with something in hand.
    if (taken.size > 0) this.revoke(taken, nowMs);
    const isMarked = givesBack && this.isCooperative && taken.size + revoked.size === 0;
    // Given back since the join, or the process that held them is gone: they are free, and only
    // this member can start the rebalance that assigns them.
    if (freed.size > 0 || isMarked) this.phase = "joining";
    return "go on";
  }

  beaten(reply: Acknowledged, sentAtMs: number, nowMs: number): Next {
    if (!this.isInSession) return "go on";
    if (reply.code !== "NONE" && reply.code !== "REBALANCE_IN_PROGRESS") {
      return this.refused(reply.code, reply.message);
    }
    this.lastHeardMs = Math.max(this.lastHeardMs, sentAtMs);
    if (reply.code === "REBALANCE_IN_PROGRESS") this.rebalance(nowMs);
    return "go on";
  }

  /** Begin a rebalance: revoke with an eager assignor, else join again. */
  rebalance(nowMs: number): void {
    if (this.isInSession && this.isCooperative) this.phase = "joining";
    else if (this.phase === "stable") this.revoke(this.assignment, nowMs);
  }

  // --- The owner, and time ---

  /** Events since the last call. From now on the owner holds what they assign. */
  handOut(nowMs: number): RebalanceEvent[] {
    this.passDeadlines(nowMs);
    const events = this.events.take();
    this.holdings.handOut();
    this.revocations.handOut();
    return events;
  }

  /** The owner has finished with all that it was told is being revoked. */
  finished(nowMs: number): void {
    this.passDeadlines(nowMs);
    const { told } = this.revocations;
    if (told.size > 0) this.letGo(told, "it was given back");
  }

  /**
   * Give back some that the owner has finished with, asked to or not. With an eager assignor the
   * others follow before the member joins again; but one that drains keeps them until it leaves.
   */
  giveBack(partitions: Partitions, reason: string, nowMs: number): void {
    this.passDeadlines(nowMs);
    const held = new Map([...this.held].filter(([name]) => partitions.has(name)));
    if (held.size === 0) return;
    this.reason ||= reason;
    this.letGo(held, reason);
    if (this.phase === "stable" && !this.isCooperative && !this.isDraining) {
      this.revoke(this.assignment, nowMs);
    }
  }

  /** Change the numbers of partitions, and join again: the leader assigns by them. */
  setTopics(topics: ReadonlyMap<string, number>, nowMs: number): void {
    this.topics = topics;
    this.reason = "the topics have changed";
    this.rebalance(nowMs);
  }

  /**
   * Expire the session, or revocations that the owner did not answer. The session ends here before
   * it can end at the coordinator: it counts from when the last answered request was *sent*.
   */
  passDeadlines(nowMs: number): void {
    if (this.isInSession && nowMs >= this.sessionEndsMs) {
      this.lose("the coordinator has not answered for a whole session timeout");
      this.memberId = "";
      return;
    }
    const overdue = this.revocations.overdue(nowMs);
    if (overdue.size === 0) return;
    const reason = "it was not given back before the deadline of its revocation";
    const lost = this.holdings.known(overdue);
    this.letGo(overdue, reason);
    if (lost.size > 0) this.events.push({ kind: "lost", partitions: lost, reason });
  }

  /** When `passDeadlines` has something to do. */
  nextDeadline(): number | undefined {
    const revocation = this.revocations.nextDeadline();
    if (!this.isInSession) return revocation;
    return Math.min(this.sessionEndsMs, revocation ?? Infinity);
  }

  /** Lose everything if no coordinator has answered for a whole session while joining. */
  unreachable(nowMs: number): void {
    if (this.isBetweenAssignments && this.held.size > 0 && nowMs >= this.sessionEndsMs) {
      this.lose("no coordinator has answered for a whole session timeout");
    }
  }

  /** All that this member has, also what is being revoked. */
  private get held(): Partitions {
    return union(this.assignment, this.revocations.partitions);
  }

  get isBetweenAssignments(): boolean {
    return this.phase === "joining" || this.phase === "syncing";
  }

  get isCooperative(): boolean {
    return isCooperative(this.assignors);
  }

  get isInSession(): boolean {
    return this.phase === "stable" || this.phase === "revoking";
  }

  get sessionEndsMs(): number {
    return this.lastHeardMs + this.config.sessionTimeoutMs;
  }

  fail(error: Error, reason = `failed: ${error.message}`): void {
    this.failure ??= error;
    this.stop(reason);
  }

  /** Partitions still held are lost. */
  stop(reason: string): void {
    if (this.phase === "stopped") return;
    this.lose(reason);
    this.phase = "stopped";
    this.events.push({ kind: "stopping", reason });
  }

  // --- Inside ---

  /** What is being revoked still; the owner goes on with what it was never told of. */
  private stillRevoked(given: Partitions): Partitions {
    const { revocations } = this;
    const again = new Map([...given].filter(([name]) => revocations.partitions.has(name)));
    const untold = without(again, revocations.told);
    revocations.end(untold);
    this.events.withdraw(untold, "revoking");
    this.assignment = union(this.assignment, untold);
    revocations.returned = without(again, untold);
    return revocations.partitions;
  }

  /** Revoke partitions; those that the owner was never told of are given back at once. */
  private revoke(partitions: Partitions, nowMs: number): void {
    const known = this.holdings.known(partitions);
    const unknown = without(partitions, known);
    this.assignment = without(this.assignment, known);
    if (known.size > 0) {
      const untilMs = nowMs + Math.floor(this.config.rebalanceTimeoutMs / 2);
      this.revocations.begin(known, untilMs);
      this.events.push({ kind: "revoking", partitions: known, deadlineMs: untilMs });
      this.phase = "revoking";
    }
    if (unknown.size > 0 || known.size === 0) {
      this.letGo(unknown, "it was taken away before it was handed out");
    }
  }

  /** End the holdings of partitions, and join again if that is all it takes. */
  private letGo(partitions: Partitions, reason: string): void {
    this.events.withdraw(partitions, "assigned", "revoking");
    this.holdings.end(partitions.keys(), reason);
    this.assignment = without(this.assignment, partitions);
    const returned = this.revocations.end(partitions);
    if (returned.size > 0) {
      this.assignment = union(this.assignment, returned);
      this.holdings.begin(returned.values(), this.generation);
      this.events.push({ kind: "assigned", partitions: returned, generation: this.generation });
    }
    if (returned.size > 0 && returned.size === partitions.size) {
      if (this.isInSession)
        this.phase = this.revocations.partitions.size > 0 ? "revoking" : "stable";
    } else if (this.mayJoinNow) {
      this.mustJoinAgain = this.phase === "joining";
      this.phase = "joining";
    }
  }

  private get mayJoinNow(): boolean {
    // While syncing, the answer shows that the group has to be told.
    return this.phase !== "syncing" && (this.isCooperative || this.held.size === 0);
  }

  private refused(code: string, message: string): Next {
    const { fallback } = this.config;
    if (code === "INCONSISTENT_GROUP_PROTOCOL" && fallback && !this.assignors.includes(fallback)) {
      this.warnings.push(
        `the group does not follow ${this.assignors.join(", ")}: joining with ${fallback}, under ` +
          `which all partitions pause in every rebalance. To move over, restart all its members ` +
          `twice: first with assignors ["${this.assignors.join('", "')}", "${fallback}"], then ` +
          `with ["${this.assignors.join('", "')}"]`,
      );
      this.assignors = [fallback];
      this.lose(code);
    } else if (FATAL.has(code)) {
      this.fail(new FatalError(message, code), code);
    } else if (code === "REBALANCE_IN_PROGRESS") {
      this.phase = "joining";
    } else if (code === "UNKNOWN_MEMBER_ID") {
      this.lose(code);
      this.memberId = "";
      this.generation = -1;
    } else if (code === "ILLEGAL_GENERATION") {
      this.lose(code);
      this.generation = -1;
    } else {
      return ELSEWHERE.has(code) ? "find the coordinator" : "pause";
    }
    return "go on";
  }

  private lose(reason: string): void {
    const lost = this.holdings.known(this.held);
    this.holdings.endAll(reason);
    this.events.unsay("assigned", "revoking");
    this.assignment = this.claimed = NO_PARTITIONS;
    this.revocations.endAll();
    if (lost.size > 0) this.events.push({ kind: "lost", partitions: lost, reason });
    this.reason = reason;
    if (this.phase !== "stopped") this.phase = "joining";
  }
}
