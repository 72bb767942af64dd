// The protocol of session groups: the coordinator assigns, and pushes what changes over a stream.
//
//   attaching ──► attached ──► attaching      the stream has ended, which says nothing of the member
//           └──► waiting ──► attached         another process of its name holds what it inherits
//   any ──► stopped                           left, superseded, or refused for good
//
// The one request is the stream; Attach is its first message, and each message that comes is heard
// beside. Orders are level-triggered: what was carried out is acknowledged again if it is named
// again.

import { FatalError } from "../../errors.js";
import { ErrorCode } from "../../generated/coordinator/v1/errors.js";
import * as pb from "../../generated/coordinator/v1/session.js";
import { nameOf } from "../../partitions.js";
import type { Random } from "../backOff.js";
import type { Commit, Heard, Identity, Next, Request } from "../calls.js";
import { Holding } from "../ledger.js";
import { type GivingBack, ProtocolPart } from "../part.js";
import type { MemberState } from "../state.js";
import { Held, Lease } from "./lease.js";
import { heldTopics, type Order, ordersOf } from "./orders.js";

const MAX_RETRY_MS = 10_000;
const ANSWER_MS = 10_000;
const SILENT_LEAST_MS = 1_000;
const HELD_EVERY = 10n;
/** What attaching again would not change. */
const FINAL: ReadonlySet<string> = new Set([
  "FENCED_INSTANCE_ID",
  "INVALID_REQUEST",
  "INVALID_GROUP_ID",
  "INCONSISTENT_GROUP_PROTOCOL",
  "GROUP_MAX_SIZE_REACHED",
]);

const { WARM, DRAIN, LOST } = pb.Wanted_Order;
const { RELEASED, READY, REFUSED } = pb.SessionAck_Kind;
const { LEFT, DRAINED, SUPERSEDED } = pb.GoAway_Reason;

/** A partition that will be this member's; its holding has no token. */
interface Preparation {
  readonly holding: Holding;
  readonly handoffId: bigint;
  isReady: boolean;
}

export class SessionPart extends ProtocolPart {
  private readonly held = new Map<string, Held>();
  private readonly preparations = new Map<string, Preparation>();
  /** Acks of orders that were carried out; they are repeated if the order is named again. */
  private readonly done = new Map<string, pb.SessionAck_Partition>();
  private readonly lease = new Lease();
  private sessionId = "";
  private streamNumber = 0n;
  private epoch = 0n;
  private version = 0n;
  private pages: pb.Wanted[] = [];
  /** Infinity: there is no stream on which to hear anything. */
  private heardMs = Infinity;
  private beatIntervalMs = 0;
  /** Undefined: not attached. */
  private beatMs: number | undefined;
  private mustTellHeld = true;
  /** Until when everything is to be handed over, and why. */
  private draining: { readonly untilMs: number; readonly reason: string } | undefined;

  constructor(state: MemberState, random: Random) {
    super(state, random, MAX_RETRY_MS);
  }

  // --- The stream ---

  protected request(nowMs: number): Request {
    const { config, topics } = this.state;
    const { id, startedAtMs } = config.incarnation;
    this.streamNumber += 1n;
    this.pages = [];
    this.lease.forgetAsked();
    this.heardMs = nowMs;
    this.state.phase = "attaching";
    const attach = pb.Attach.fromPartial({
      groupId: config.groupId,
      memberName: config.memberName ?? "",
      incarnation: { id, startedAtMs: BigInt(startedAtMs) },
      sessionId: this.sessionId,
      streamNumber: this.streamNumber,
      clientId: config.clientId,
      topics: [...topics].map(([name, partitions]) => ({ name, partitions })),
      capacity: config.capacity,
      held: heldTopics(this.held.values()),
      coordinatorEpoch: this.epoch,
    });
    return { kind: "attach", said: { attach } };
  }

  /** The stream has ended, which says nothing about the member: it attaches again. */
  protected answered(): Next {
    return "pause";
  }

  protected override plan(next: Next, nowMs: number, afterMs = 0): Next {
    this.beatMs = undefined;
    this.heardMs = Infinity;
    return super.plan(next, nowMs, afterMs);
  }

  /** What is held lasts as long as its lease. */
  protected unreachable(): void {}

  hear(heard: Heard, nowMs: number): Next {
    this.heardMs = nowMs;
    if (heard.attached) this.attached(heard.attached, nowMs);
    else if (heard.heartbeatAck) this.acknowledged(heard.heartbeatAck, nowMs);
    else if (heard.wanted) this.wanted(heard.wanted, undefined, nowMs);
    else if (heard.refused) return this.refused(heard.refused, nowMs);
    else if (heard.goAway) return this.goneAway(heard.goAway, nowMs);
    return "go on";
  }

  leave(reason: string, returnWithinMs: number | undefined): "said" | undefined {
    if (!this.isOut) return undefined;
    const isBack = returnWithinMs !== undefined;
    const kind = pb.SessionLeave_Kind[isBack ? "RETURN" : "NOW"];
    this.say({ leave: { kind, withinMs: returnWithinMs ?? 0, reason } });
    return "said";
  }

  drain(withinMs: number, reason: string, nowMs: number): void {
    this.draining = { untilMs: nowMs + withinMs, reason };
    if (this.beatMs !== undefined) this.sayDrain(nowMs);
  }

  private sayDrain(nowMs: number): void {
    const { untilMs, reason } = this.draining!;
    const withinMs = Math.max(0, untilMs - nowMs);
    this.say({ leave: { kind: pb.SessionLeave_Kind.DRAIN, withinMs, reason } });
  }

  setTopics(topics: ReadonlyMap<string, number>): void {
    this.state.topics = topics;
    this.mustRepeat = true; // Attach declares them.
  }

  // --- What is heard ---

  private attached(attached: pb.Attached, nowMs: number): void {
    if (attached.coordinatorEpoch < this.epoch) return;
    const { state, lease } = this;
    this.epoch = attached.coordinatorEpoch;
    lease.begin(attached.leaseMs, attached.sessionId !== this.sessionId);
    this.sessionId = attached.sessionId;
    state.memberId = attached.memberId;
    state.ledger.beginMembership(-1);
    this.backOff.reset();
    // Several attempts fit into a lease.
    this.backOff.mostMs = Math.min(MAX_RETRY_MS, attached.leaseMs / 10);
    this.beatIntervalMs = attached.heartbeatIntervalMs;
    this.beatMs = nowMs + this.beatIntervalMs;
    if (this.draining !== undefined) this.sayDrain(nowMs);
    state.phase = attached.standing === pb.Attached_Standing.WAITING ? "waiting" : "attached";
    if (state.phase === "waiting" || attached.wanted === undefined) return;
    this.wanted(attached.wanted, this.sentMs, nowMs);
  }

  private acknowledged(ack: pb.SessionHeartbeatAck, nowMs: number): void {
    if (ack.coordinatorEpoch < this.epoch) return;
    this.epoch = ack.coordinatorEpoch;
    const sentMs = this.lease.acknowledged(ack.number);
    if (sentMs === undefined) return; // An older one moves nothing back.
    for (const { name, partitions } of ack.notRenewed) {
      for (const { first, last } of partitions) {
        for (let partition = first; partition <= last; partition++) {
          const held = this.held.get(nameOf({ topic: name, partition }));
          if (held) this.lease.freeze(held);
        }
      }
    }
    if (!this.lease.renew(sentMs, nowMs)) this.askWhole(nowMs);
  }

  private refused({ errorCode, errorMessage, retryAfterMs }: pb.SessionRefused, nowMs: number) {
    const code = ErrorCode[errorCode] ?? `${errorCode}`;
    if (FINAL.has(code)) {
      this.fail(new FatalError(errorMessage, code), `${code}: ${errorMessage}`);
    } else if (errorCode === ErrorCode.UNKNOWN_MEMBER_ID) {
      this.lose("the session has ended");
      this.sessionId = "";
      this.epoch = 0n; // Epochs are compared within a session.
    }
    const isElsewhere = errorCode === ErrorCode.NOT_COORDINATOR;
    return this.plan(isElsewhere ? "find the coordinator" : "pause", nowMs, retryAfterMs);
  }

  private goneAway({ reason, host, port }: pb.GoAway, nowMs: number): Next {
    if (reason === SUPERSEDED) {
      const text = "another process has taken its place";
      this.fail(new FatalError(text, "FENCED_INSTANCE_ID"), text);
    } else if (reason === LEFT || reason === DRAINED) this.stop("it has left");
    else if (host !== "") this.state.movedTo = `${host}:${port}`;
    return this.plan("find the coordinator", nowMs);
  }

  /** @param sentMs when that was sent which it answers; undefined: its own field says. */
  private wanted(wanted: pb.Wanted, sentMs: number | undefined, nowMs: number): void {
    const askedMs = wanted.answers === undefined ? sentMs : this.lease.answered(wanted.answers);
    if (wanted.coordinatorEpoch < this.epoch) return;
    this.pages.push(wanted);
    if (wanted.isPart) return;
    const orders = this.pages.flatMap(ordersOf);
    this.pages = [];
    if (wanted.basedOn !== undefined) {
      if (wanted.basedOn > this.version) return this.askWhole(nowMs);
      if (wanted.basedOn < this.version) return;
    }
    this.version = wanted.version;
    const isWhole = wanted.basedOn === undefined;
    const isFresh = isWhole && this.lease.confirm(askedMs, nowMs);
    if (isWhole) this.dropAllBut(new Set(orders.map(nameOf)));
    for (const order of orders) this.carryOut(order, isFresh, nowMs);
  }

  /** What a whole state does not name. */
  private dropAllBut(named: ReadonlySet<string>): void {
    for (const [name, held] of this.held) {
      if (!named.has(name)) this.loseOne(held, "another member may have it");
    }
    for (const name of [...this.preparations.keys()]) if (!named.has(name)) this.drop(name);
  }

  private carryOut(order: Order, isFresh: boolean, nowMs: number): void {
    const { token, range } = order;
    const name = nameOf(order);
    const held = this.held.get(name);
    if (range.order === WARM) return this.warm(name, order);
    if (range.order === LOST) {
      this.drop(name);
      if (!held && token !== 0) this.repeat(name, token);
      const isMine = token === 0 || token === held?.holding.token;
      if (held && isMine) this.loseOne(held, "it was taken away");
      return;
    }
    let wanted = held;
    if (held && held.holding.token !== token) {
      this.loseOne(held, "it was granted anew");
      wanted = undefined;
    }
    if (wanted === undefined) {
      if (this.repeat(name, token) || range.order === DRAIN) return;
      wanted = this.grant(order);
    } else if (isFresh && wanted.isSuspended && wanted.state !== "lost") {
      // One that is renewed no more stays suspended.
      wanted.isSuspended = !this.lease.isUsable(wanted, nowMs);
      if (!wanted.isSuspended) this.tell("resumed", wanted.holding);
    }
    wanted.isPaused = range.paused;
    if (range.order !== DRAIN || wanted.state !== "active") return;
    const { remainingMs, handoffId } = range;
    const deadlineMs = remainingMs > 0 ? nowMs + remainingMs : undefined;
    Object.assign(wanted, { state: "draining", handoffId, drainByMs: deadlineMs ?? Infinity });
    this.state.events.pushTogether({ kind: "revoking", holdings: [wanted.holding], deadlineMs });
  }

  private grant({ topic, partition, token, offset }: Order): Held {
    const holding = new Holding(topic, partition, token, -1, offset);
    const held = new Held(this.state.ledger.beginOne(holding));
    this.preparations.delete(held.holding.name);
    this.done.delete(held.holding.name);
    this.held.set(held.holding.name, held);
    this.mustTellHeld = true;
    this.tell("granted", held.holding);
    return held;
  }

  private warm(name: string, { topic, partition, offset, range }: Order): void {
    const { handoffId, position } = range;
    const known = this.preparations.get(name);
    if (known?.handoffId === handoffId) {
      if (known.isReady) this.acknowledge(known.holding, READY, handoffId);
      return;
    }
    this.drop(name);
    const holding = new Holding(topic, partition, 0, -1, offset, position);
    this.preparations.set(name, { holding, handoffId, isReady: false });
    this.tell("warming", holding);
  }

  // --- The owner ---

  /** The order to give them back is told as it comes. */
  told(): void {}

  /** Nothing of them runs any more, and their last commits were answered. */
  giveBack(holdings: readonly Holding[], how: GivingBack, _nowMs: number): void {
    if (this.state.phase === "stopped") return;
    const { reason, position, isRefused = false } = how;
    const said = { position, reason: isRefused ? reason : "" };
    for (const holding of holdings) {
      const { name } = holding;
      const kind = isRefused ? REFUSED : RELEASED;
      const held = this.held.get(name);
      const preparation = this.preparations.get(name);
      if (held?.holding === holding) {
        this.held.delete(name);
        this.state.ledger.end([name], reason);
        this.acknowledge(holding, kind, held.handoffId, said);
      } else if (preparation?.holding === holding && isRefused) {
        this.preparations.delete(name);
        this.acknowledge(holding, kind, preparation.handoffId, said);
      }
    }
  }

  ready(holdings: readonly Holding[]): void {
    for (const holding of holdings) {
      const preparation = this.preparations.get(holding.name);
      if (preparation?.holding !== holding) continue;
      preparation.isReady = true;
      this.acknowledge(holding, READY, preparation.handoffId);
    }
  }

  // --- Holdings ---

  get workable(): ReadonlyMap<string, unknown> {
    return new Map([...this.held].filter(([, { state }]) => state === "active"));
  }

  unproven(holding: Holding, nowMs: number): string | undefined {
    const held = this.held.get(holding.name);
    if (held === undefined) return undefined; // The membership.
    const isUsable = !held.isSuspended && this.lease.isUsable(held, nowMs);
    return isUsable ? undefined : "it is suspended: the coordinator was not heard for 0.9 leases";
  }

  takesWork(holding: Holding, nowMs: number): boolean {
    const held = this.held.get(holding.name);
    if (held?.holding !== holding || held.state !== "active") return false;
    return !held.isPaused && !held.isSuspended && this.lease.takesWork(held, nowMs);
  }

  identity(): Identity {
    const { config, generation, memberId } = this.state;
    return { groupId: config.groupId, generation, memberId, instanceId: undefined };
  }

  commit(commit: Commit, claimed: readonly Holding[]): Request {
    const tokens = new Map(claimed.map(({ name, token }) => [name, token]));
    return { kind: "commit", member: this.identity(), commit, tokens };
  }

  /** A commit depends on its token alone. */
  rebalance(): void {}

  readonly isBetweenAssignments = false;

  get standing(): string | undefined {
    const { phase } = this.state;
    return phase === "attached" || phase === "waiting" ? `${phase}` : undefined;
  }

  protected get patienceMs(): number {
    return this.lease.ms || ANSWER_MS;
  }

  protected readonly pauseMs = 0;

  private loseOne(held: Held, reason: string): void {
    if (held.state === "lost") return;
    held.state = "lost";
    const { holding } = held;
    this.state.ledger.end([holding.name], reason);
    this.state.events.pushTogether({ kind: "lost", holdings: [holding], reason });
  }

  protected lose(reason: string): void {
    for (const held of this.held.values()) this.loseOne(held, reason);
    for (const name of [...this.preparations.keys()]) this.drop(name);
    this.held.clear();
    this.state.ledger.endAll(reason);
  }

  private drop(name: string): void {
    const preparation = this.preparations.get(name);
    if (!this.preparations.delete(name)) return;
    const reason = "it is not to be prepared for any more";
    this.state.events.pushTogether({ kind: "lost", holdings: [preparation!.holding], reason });
  }

  private tell(kind: "granted" | "warming" | "suspended" | "resumed", holding: Holding): void {
    this.state.events.pushTogether({ kind, holdings: [holding] });
  }

  // --- Time, and what is said ---

  passDeadlines(nowMs: number): Next {
    if (this.state.phase === "stopped") return "go on";
    for (const held of this.held.values()) {
      if (held.state === "lost") continue;
      if (nowMs >= held.drainByMs) this.loseOne(held, "it was not released in time");
      else if (!held.isSuspended && !this.lease.isUsable(held, nowMs)) {
        held.isSuspended = true;
        this.tell("suspended", held.holding);
      }
    }
    if (!this.isOut) return "go on";
    if (nowMs >= this.silentMs) return this.plan("find the coordinator", nowMs);
    if (this.beatMs !== undefined && nowMs >= this.beatMs) this.beat(false, nowMs);
    return "go on";
  }

  protected deadline(): number | undefined {
    if (this.state.phase === "stopped") return undefined;
    let next = this.isOut ? Math.min(this.silentMs, this.beatMs ?? Infinity) : Infinity;
    for (const held of this.held.values()) {
      if (held.state === "lost") continue;
      next = Math.min(next, held.drainByMs, held.isSuspended ? Infinity : this.lease.endsMs(held));
    }
    return next === Infinity ? undefined : next;
  }

  /** When a stream counts as broken on which nothing is heard. */
  private get silentMs(): number {
    return this.heardMs + Math.max(this.patienceMs, SILENT_LEAST_MS);
  }

  /** Once: until there is an answer, every heartbeat in time asks again. */
  private askWhole(nowMs: number): void {
    if (!this.lease.isAsked) this.beat(true, nowMs);
  }

  private beat(asks: boolean, nowMs: number): void {
    const { number, whole } = this.lease.beat(asks, nowMs);
    if (!asks) this.beatMs = nowMs + this.beatIntervalMs;
    const tellsHeld = this.mustTellHeld || number % HELD_EVERY === 0n;
    this.mustTellHeld = false;
    const heartbeat = pb.SessionHeartbeat.fromPartial({
      number,
      appliedEpoch: this.epoch,
      appliedVersion: this.version,
      whole,
      progress: BigInt(this.state.progressMs),
      held: tellsHeld ? { topics: heldTopics(this.held.values()) } : undefined,
    });
    this.say({ heartbeat });
  }

  private acknowledge(
    { topic, partition, name, token }: Holding,
    kind: pb.SessionAck_Kind,
    handoffId: bigint,
    said: { position?: bigint | undefined; reason?: string } = {},
  ): void {
    const { position, reason = "" } = said;
    const ack = { topic, partition, kind, token: BigInt(token), handoffId, position, reason };
    this.mustTellHeld = true;
    this.done.set(name, ack);
    this.say({ ack: { partitions: [ack] } });
  }

  private repeat(name: string, token: number): boolean {
    const ack = this.done.get(name);
    if (ack === undefined || ack.token !== BigInt(token)) return false;
    this.say({ ack: { partitions: [ack] } });
    return true;
  }

  private say(said: pb.SessionRequest): void {
    this.state.actions.push({ kind: "say", said });
  }
}
