// The protocol of classic groups: a member's requests, and what answers change.
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
// The owner learns of changes later, from the machine's `handOut`. Partitions that it was never
// told of are given back without asking it. Those it did not give back in time it is told of as
// lost.

import {
  type AssignorName,
  isCooperative,
  type ReadAssignment,
  readAssignment,
  shareOut,
  subscribe,
} from "../../assignors/index.js";
import { FatalError } from "../../errors.js";
import { NO_PARTITIONS, type Partitions, union, without } from "../../partitions.js";
import type { Random } from "../backOff.js";
import {
  type Acknowledged,
  type Commit,
  ELSEWHERE,
  type Identity,
  type Joined,
  type Next,
  type Reply,
  type Request,
  type Synced,
} from "../calls.js";
import type { Holding } from "../ledger.js";
import { type GivingBack, ProtocolPart } from "../part.js";
import type { MemberState } from "../state.js";
import { Revocations } from "./revocations.js";

const BEATS_A_SESSION = 4; // That many may fail in a row before the session ends.
const JOIN_GRACE_MS = 5_000; // As Kafka's client adds to the rebalance time-out.

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

export class ClassicPart extends ProtocolPart {
  /** What the member has, without what is being revoked. */
  private assignment: Partitions = NO_PARTITIONS;
  private assignors: readonly AssignorName[];
  private readonly revocations = new Revocations();
  /** True if the member takes no more partitions: it subscribes to nothing. */
  private isDraining = false;
  private claimed: Partitions = NO_PARTITIONS;
  private lastHeardMs = 0;
  private lastJoin: Joined | undefined;
  private reason = "";
  private warned: readonly string[] = [];
  /** Topics of the last join. */
  private declared: ReadonlySet<string> = new Set();
  private assigned: ReadAssignment | undefined;

  constructor(state: MemberState, random: Random) {
    // Several attempts fit into a session, whose end costs the partitions.
    super(state, random, Math.min(5_000, state.config.sessionTimeoutMs / 6));
    this.assignors = state.config.assignors;
  }

  // --- Requests ---

  protected request(): Request {
    switch (this.state.phase) {
      case "joining":
        return this.join();
      case "syncing":
        return this.sync();
      default:
        return { kind: "beat", member: this.identity() };
    }
  }

  override timeoutMs(request: Request): number | undefined {
    if (request.kind === "join" || request.kind === "sync") {
      return this.state.config.rebalanceTimeoutMs + JOIN_GRACE_MS;
    }
    const mostMs = super.timeoutMs(request)!;
    // A node that was stopped never answers: leave time to find its successor.
    if (request.kind !== "beat") return mostMs;
    return Math.min(Math.floor(this.patienceMs / BEATS_A_SESSION), mostMs);
  }

  identity(): Identity {
    const { generation, memberId, config } = this.state;
    const { groupId, instanceId } = config;
    return { groupId, generation, memberId, instanceId };
  }

  private join(): Request {
    const { config, topics, generation } = this.state;
    const { sessionTimeoutMs, rebalanceTimeoutMs, clientId } = config;
    this.mustRepeat = false;
    this.claimed = this.held;
    this.declared = new Set(topics.keys());
    const counts: ReadonlyMap<string, number> = this.isDraining ? new Map() : topics;
    const held = { topics: [...counts.keys()], owned: [...this.claimed.values()], generation };
    const said = { counts, unwanted: [...this.state.unwanted()] };
    return {
      kind: "join",
      member: this.identity(),
      protocols: this.assignors.map((name) => ({ name, metadata: subscribe(name, held, said) })),
      sessionTimeoutMs,
      rebalanceTimeoutMs,
      clientId,
      reason: this.reason,
    };
  }

  /** The leader's has the assignments of all members. */
  private sync(): Request {
    const { isLeader, memberId, topics } = this.state;
    const { protocolName = "", members = [], skipAssignment = false } = this.lastJoin ?? {};
    const isFollowed = isLeader && !skipAssignment;
    const { assignments, warnings } = isFollowed
      ? shareOut(protocolName, memberId, topics, members)
      : { assignments: [], warnings: [] };
    this.warnOf(warnings);
    return { kind: "sync", member: this.identity(), protocolName, assignments };
  }

  /** Once each, until it is no longer so. */
  private warnOf(warnings: readonly string[]): void {
    this.state.warnings.push(...warnings.filter((each) => !this.warned.includes(each)));
    this.warned = warnings;
  }

  commit(commit: Commit): Request {
    return { kind: "commit", member: this.identity(), commit };
  }

  /** A static member's place is kept for the process that comes back under its instance id. */
  leave(reason: string): Request | undefined {
    const { memberId, config } = this.state;
    return memberId === "" || config.instanceId !== undefined
      ? undefined
      : { kind: "leave", member: this.identity(), reason: reason.slice(0, 255) };
  }

  // --- Answers ---

  protected answered(reply: Reply, nowMs: number): Next {
    switch (reply.kind) {
      case "joined":
        return this.joined(reply);
      case "synced":
        return this.synced(reply, nowMs);
      default:
        return this.beaten(reply as Acknowledged, nowMs);
    }
  }

  private joined(reply: Joined): Next {
    const { state } = this;
    if (state.phase !== "joining") return "go on";
    if (reply.code === "MEMBER_ID_REQUIRED") {
      state.memberId = reply.memberId;
      return "go on";
    }
    if (reply.code !== "NONE") return this.refused(reply.code, reply.message);
    state.memberId = reply.memberId;
    state.generation = reply.generation;
    state.isLeader = reply.leader === reply.memberId;
    this.lastJoin = reply;
    this.reason = "";
    state.phase = "syncing";
    return "go on";
  }

  /** The session is counted from when the request was sent. */
  private synced(reply: Synced, nowMs: number): Next {
    const { state } = this;
    if (state.phase !== "syncing") return "go on";
    if (reply.code !== "NONE") return this.refused(reply.code, reply.message);
    this.lastHeardMs = this.sentMs;
    const read = readAssignment(reply.assignment);
    const { given, givesBack } = read;
    const revoked = this.stillRevoked(given);
    const taken = without(this.assignment, given);
    const added = without(without(given, this.assignment), revoked);
    const freed = without(without(without(this.claimed, given), this.assignment), revoked);
    state.phase = revoked.size > 0 ? "revoking" : "stable";
    this.assignment = without(given, revoked);
    if (!this.isCooperative) state.events.unsay("granted");
    this.grant(added);
    state.ledger.beginMembership(state.generation);
    // Only a cooperative assignor gets here with something in hand.
    if (taken.size > 0) this.revoke(taken, nowMs);
    const isMarked = givesBack && this.isCooperative && taken.size + revoked.size === 0;
    // Given back since the join, or the process that held them is gone: they are free, and only
    // this member can start the rebalance that assigns them.
    if (freed.size > 0 || isMarked) state.phase = "joining";
    this.assigned = read;
    // They changed since they were sent, or while the member's place was empty.
    if (this.mustDeclare) this.declareAnew(nowMs);
    return "go on";
  }

  private beaten(reply: Acknowledged, nowMs: number): Next {
    if (!this.isInSession) return "go on";
    if (reply.code !== "NONE" && reply.code !== "REBALANCE_IN_PROGRESS") {
      return this.refused(reply.code, reply.message);
    }
    this.lastHeardMs = Math.max(this.lastHeardMs, this.sentMs);
    if (reply.code === "REBALANCE_IN_PROGRESS") this.rebalance(nowMs);
    return "go on";
  }

  /** All that is heard are answers. */
  hear(): Next {
    return "go on";
  }

  /** Begin a rebalance: revoke with an eager assignor, else join again. */
  rebalance(nowMs: number): void {
    this.moving(nowMs, () => {
      if (this.isInSession && this.isCooperative) this.state.phase = "joining";
      else if (this.state.phase === "stable") this.revoke(this.assignment, nowMs);
    });
  }

  // --- The owner, and time ---

  told(revoking: readonly Holding[]): void {
    this.revocations.handOut(revoking);
  }

  /**
   * Give back some that the owner has finished with, asked to or not. With an eager assignor the
   * others follow before the member joins again; but one that drains keeps them until it leaves.
   */
  giveBack(holdings: readonly Holding[], { reason }: GivingBack, nowMs: number): void {
    this.moving(nowMs, () => {
      this.passDeadlines(nowMs);
      const lasting = holdings.filter((holding) => this.state.ledger.lasts(holding));
      if (lasting.length === 0) return;
      this.reason ||= reason;
      this.letGo(new Map(lasting.map((holding) => [holding.name, holding])), reason);
      if (this.state.phase === "stable" && !this.isCooperative && !this.isDraining) {
        this.revoke(this.assignment, nowMs);
      }
    });
  }

  /** Nothing is prepared for in a classic group. */
  ready(): void {}

  /**
   * Join again with other topics, and with numbers that the leader neither knows nor has divided:
   * of the members that find new partitions only the first one does.
   */
  setTopics(topics: ReadonlyMap<string, number>, nowMs: number): void {
    this.state.topics = topics;
    if (this.mustDeclare) this.declareAnew(nowMs);
  }

  private get mustDeclare(): boolean {
    const { topics } = this.state;
    const isSame = topics.size === this.declared.size;
    if (!isSame || [...topics.keys()].some((topic) => !this.declared.has(topic))) return true;
    return !this.isDraining && this.assigned !== undefined && !this.assigned.knows(topics);
  }

  private declareAnew(nowMs: number): void {
    if (this.isInSession) this.reason ||= "the topics have changed";
    this.rebalance(nowMs);
  }

  /** From the next join on. */
  drain(): void {
    this.isDraining = true;
  }

  /**
   * Expire the session, or revocations that the owner did not answer. The session ends here before
   * it can end at the coordinator: it counts from when the last answered request was *sent*.
   */
  passDeadlines(nowMs: number): Next {
    const { phase, ledger, events } = this.state;
    const overdue = this.revocations.overdue(nowMs);
    if (this.isInSession && nowMs >= this.sessionEndsMs) {
      this.lose("the coordinator has not answered for a whole session timeout");
    } else if (overdue.size > 0) {
      const reason = "it was not given back before the deadline of its revocation";
      const lost = [...ledger.known(overdue).values()];
      this.letGo(overdue, reason);
      if (lost.length > 0) events.push({ kind: "lost", holdings: lost, reason });
    }
    if (this.state.phase !== phase && !this.isBackingOff) this.hurry(nowMs);
    return "go on";
  }

  protected deadline(): number | undefined {
    const revocation = this.revocations.nextDeadline();
    if (!this.isInSession) return revocation;
    return Math.min(this.sessionEndsMs, revocation ?? Infinity);
  }

  /** Lose everything if no coordinator has answered for a whole session while joining. */
  protected unreachable(nowMs: number): void {
    if (this.isBetweenAssignments && this.held.size > 0 && nowMs >= this.sessionEndsMs) {
      this.lose("no coordinator has answered for a whole session timeout");
    }
  }

  /** The generation proves all holdings that last. */
  unproven(): undefined {}

  takesWork({ name }: Holding): boolean {
    return this.assignment.has(name);
  }

  get workable(): Partitions {
    return this.assignment;
  }

  /** All that this member has, also what is being revoked. */
  private get held(): Partitions {
    return union(this.assignment, this.revocations.partitions);
  }

  get isBetweenAssignments(): boolean {
    return this.state.phase === "joining" || this.state.phase === "syncing";
  }

  get standing(): string | undefined {
    const { generation, isLeader } = this.state;
    if (!this.isInSession) return undefined;
    return `joined generation ${generation}${isLeader ? " as its leader" : ""}`;
  }

  protected get patienceMs(): number {
    return this.state.config.sessionTimeoutMs;
  }

  protected get pauseMs(): number {
    return this.isInSession ? this.state.config.heartbeatIntervalMs : 0;
  }

  private get isCooperative(): boolean {
    return isCooperative(this.assignors);
  }

  /** True while the group knows the member, and it beats. */
  private get isInSession(): boolean {
    return this.state.phase === "stable" || this.state.phase === "revoking";
  }

  private get sessionEndsMs(): number {
    return this.lastHeardMs + this.patienceMs;
  }

  // --- Inside ---

  /** Take the next step at once if an input moves the member to another phase. */
  private moving(nowMs: number, input: () => void): void {
    const { phase } = this.state;
    input();
    if (this.state.phase !== phase) this.hurry(nowMs);
  }

  private grant(partitions: Partitions): void {
    if (partitions.size === 0) return;
    const { ledger, events, generation } = this.state;
    events.push({ kind: "granted", holdings: ledger.begin(partitions.values(), generation) });
  }

  /** What is being revoked still; the owner goes on with what it was never told of. */
  private stillRevoked(given: Partitions): Partitions {
    const { revocations } = this;
    const again = new Map([...given].filter(([name]) => revocations.partitions.has(name)));
    const untold = without(again, revocations.told);
    revocations.end(untold);
    this.state.events.withdraw(untold, "revoking");
    this.assignment = union(this.assignment, untold);
    revocations.returned = without(again, untold);
    return revocations.partitions;
  }

  /** Revoke partitions; those that the owner was never told of are given back at once. */
  private revoke(partitions: Partitions, nowMs: number): void {
    const { state } = this;
    const known = state.ledger.known(partitions);
    const unknown = without(partitions, known);
    this.assignment = without(this.assignment, known);
    if (known.size > 0) {
      const deadlineMs = nowMs + Math.floor(state.config.rebalanceTimeoutMs / 2);
      this.revocations.begin(known, deadlineMs);
      state.events.push({ kind: "revoking", holdings: [...known.values()], deadlineMs });
      state.phase = "revoking";
    }
    if (unknown.size > 0 || known.size === 0) {
      this.letGo(unknown, "it was taken away before it was handed out");
    }
  }

  /** End the holdings of partitions, and join again if that is all it takes. */
  private letGo(partitions: Partitions, reason: string): void {
    const { state } = this;
    state.events.withdraw(partitions, "granted", "revoking");
    state.ledger.end(partitions.keys(), reason);
    this.assignment = without(this.assignment, partitions);
    const returned = this.revocations.end(partitions);
    this.assignment = union(this.assignment, returned);
    this.grant(returned);
    if (returned.size > 0 && returned.size === partitions.size) {
      if (this.isInSession)
        state.phase = this.revocations.partitions.size > 0 ? "revoking" : "stable";
    } else if (this.mayJoinNow) {
      this.mustRepeat = state.phase === "joining";
      state.phase = "joining";
    }
  }

  private get mayJoinNow(): boolean {
    // While syncing, the answer shows that the group has to be told.
    return this.state.phase !== "syncing" && (this.isCooperative || this.held.size === 0);
  }

  private refused(code: string, message: string): Next {
    const { state } = this;
    const { fallback } = state.config;
    if (code === "INCONSISTENT_GROUP_PROTOCOL" && fallback && !this.assignors.includes(fallback)) {
      state.warnings.push(
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
      state.phase = "joining";
    } else if (code === "UNKNOWN_MEMBER_ID") {
      this.lose(code);
      state.memberId = "";
      state.generation = -1;
    } else if (code === "ILLEGAL_GENERATION") {
      this.lose(code);
      state.generation = -1;
    } else {
      return ELSEWHERE.has(code) ? "find the coordinator" : "pause";
    }
    return "go on";
  }

  protected lose(reason: string): void {
    const { state } = this;
    const lost = [...state.ledger.known(this.held).values()];
    state.ledger.endAll(reason);
    state.events.unsay("granted", "revoking");
    this.assignment = this.claimed = NO_PARTITIONS;
    this.revocations.endAll();
    if (lost.length > 0) state.events.push({ kind: "lost", holdings: lost, reason });
    this.reason = reason;
    state.phase = "joining"; // Of one that stops, `stopped` follows at once.
  }
}
