// A member of a session group: the coordinator assigns, and pushes what changes.
//
// All times are of one clock that counts sleep. A partition may be used until 0.9 of the lease
// after the newest heartbeat was *sent* whose acknowledgement did not list it; that is compared at
// the point of use, so no late timer makes it valid for longer.

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import * as grpc from "@grpc/grpc-js";
import { CommitFailed, StaleMember } from "../errors.js";
import { ErrorCode } from "../generated/coordinator/v1/errors.js";
import * as group from "../generated/coordinator/v1/group.js";
import * as pb from "../generated/coordinator/v1/session.js";
import { now } from "./clock.js";
import { type Change, Holding, Preparation } from "./holding.js";

const RETRY_MS = 100;
const MAX_RETRY_MS = 10_000;
const ANSWER_MS = 10_000;
/** What attaching again would not change. */
const FINAL = new Set(["FENCED_INSTANCE_ID", "INVALID_REQUEST", "INVALID_GROUP_ID",
  "INCONSISTENT_GROUP_PROTOCOL", "GROUP_MAX_SIZE_REACHED"]);

const { WARM, DRAIN, LOST } = pb.Wanted_Order;
const { LEFT, DRAINED, SUPERSEDED } = pb.GoAway_Reason;

type Stream = grpc.ClientDuplexStream<pb.SessionRequest, pb.SessionResponse>;

export interface SessionSettings {
  /** A place that is stable across restarts. */
  name?: string;
  clientId?: string;
  capacity?: number;
  credentials?: grpc.ChannelCredentials;
}

export class SessionMember {
  leaseMs = 0;
  memberId = "";
  private readonly incarnation = { id: randomBytes(16), startedAtMs: BigInt(Date.now()) };
  private readonly held = new Map<string, Holding>();
  private readonly warming = new Map<string, Preparation>();
  /** Acks of orders that were carried out; they are repeated if the order is named again. */
  private readonly done = new Map<string, pb.SessionAck_Partition>();
  private sessionId = "";
  private streamNumber = 0n;
  private number = 0n;
  private epoch = 0n;
  private version = 0n;
  private renewed = -Infinity;
  private heardAt = 0;
  private attachSentAt = 0;
  /** When heartbeats were sent that are not acknowledged. */
  private readonly sent = new Map<bigint, number>();
  /** When heartbeats were sent that asked for the whole, and have no answer. */
  private readonly asked = new Map<bigint, number>();
  private pages: pb.Wanted[] = [];
  private tellsHeld = true;
  private progress = 0;
  private address: string | undefined;
  private client: pb.GroupSessionsClient | undefined;
  private stream: Stream | undefined;
  private beating: NodeJS.Timeout | undefined;
  private readonly watch: NodeJS.Timeout;
  private retries = 0;
  private leaving = false;
  private isStopped = false;
  private readonly queue: Change[] = [];
  private wake: () => void = () => {};

  constructor(
    private readonly bootstrap: string,
    private readonly groupId: string,
    private readonly topics: Record<string, number>,
    private readonly settings: SessionSettings = {},
  ) {
    this.watch = setInterval(() => this.look(), 50);
    void this.open();
  }

  /** What becomes of it; ends after `stopping`. Asking for the next one counts as progress. */
  async *changes(): AsyncGenerator<Change> {
    for (;;) {
      this.progress = Math.floor(now());
      const change = this.queue.shift();
      if (change === undefined) await new Promise<void>((resolve) => (this.wake = resolve));
      else yield change;
      if (change?.kind === "stopping") return;
    }
  }

  /** Leave: NOW, by handing everything over (DRAIN), or to be back soon (RETURN). */
  leave(kind: "NOW" | "DRAIN" | "RETURN", withinMs = 0, reason = ""): void {
    this.leaving = kind !== "DRAIN";
    if (this.stream === undefined && this.leaving) return this.stop("it has left");
    this.send({ leave: { kind: pb.SessionLeave_Kind[kind], withinMs, reason } });
  }

  // --- For holdings ---

  age(holding: Holding): number {
    return now() - (holding.frozen ?? this.renewed);
  }

  async commit(holding: Holding, offset: bigint): Promise<void> {
    if (!holding.valid) throw new StaleMember(`${key(holding)} is suspended, or not held`);
    const { topic, partition, token } = holding;
    const stored = { partitionIndex: partition, committedOffset: offset, token };
    const request = group.OffsetCommitRequest.fromPartial({
      groupId: this.groupId,
      memberId: this.memberId,
      topics: [{ name: topic, partitions: [stored] }],
    });
    const node = new group.GroupCoordinatorClient(this.address ?? this.bootstrap, this.credentials);
    try {
      const answer = await called<group.OffsetCommitResponse>((rest, done) =>
        node.offsetCommit(request, ...rest, done),
      );
      const code = answer.topics[0]?.partitions[0]?.errorCode ?? ErrorCode.UNKNOWN_SERVER_ERROR;
      if (code === ErrorCode.FENCED_TOKEN) throw new StaleMember(`${key(holding)} is another's`);
      if (code !== ErrorCode.NONE) throw new CommitFailed(ErrorCode[code]);
      if (!holding.valid) throw new StaleMember(`${key(holding)} was lost meanwhile`);
    } finally {
      node.close();
    }
  }

  giveUp(holding: Holding, position?: bigint, refused?: string): void {
    if (holding.state === "ended") return;
    holding.state = "ended";
    if (this.held.get(key(holding)) === holding) this.held.delete(key(holding));
    const { topic, partition, token, handoffId } = holding;
    const kind = refused === undefined ? pb.SessionAck_Kind.RELEASED : pb.SessionAck_Kind.REFUSED;
    this.acknowledge({ topic, partition, kind, token, handoffId, position, reason: refused ?? "" });
  }

  say(preparation: Preparation, refused?: string): void {
    const { topic, partition, handoffId } = preparation;
    if (this.warming.get(key(preparation)) !== preparation) return;
    if (refused !== undefined) this.warming.delete(key(preparation));
    const kind = refused === undefined ? pb.SessionAck_Kind.READY : pb.SessionAck_Kind.REFUSED;
    this.acknowledge({ topic, partition, kind, handoffId, reason: refused ?? "" });
  }

  // --- Streams ---

  private get credentials(): grpc.ChannelCredentials {
    return this.settings.credentials ?? grpc.credentials.createInsecure();
  }

  private async open(): Promise<void> {
    if (this.isStopped) return;
    try {
      this.address ??= await this.find();
    } catch {
      return this.retry();
    }
    if (this.isStopped) return;
    this.client = new pb.GroupSessionsClient(this.address, this.credentials);
    const stream = (this.stream = this.client.session());
    stream.on("data", (said: pb.SessionResponse) => this.stream === stream && this.hear(said));
    stream.on("error", () => this.closed(stream, true));
    stream.on("end", () => this.closed(stream, false));
    this.streamNumber += 1n;
    this.pages = [];
    this.asked.clear();
    this.attachSentAt = this.heardAt = now();
    this.send({
      attach: {
        ...pb.Attach.fromPartial({}),
        groupId: this.groupId,
        memberName: this.settings.name ?? "",
        incarnation: this.incarnation,
        sessionId: this.sessionId,
        streamNumber: this.streamNumber,
        clientId: this.settings.clientId ?? hostname(),
        topics: Object.entries(this.topics).map(([name, partitions]) => ({ name, partitions })),
        capacity: this.settings.capacity,
        held: this.heldTopics(),
        coordinatorEpoch: this.epoch,
      },
    });
  }

  private async find(): Promise<string> {
    const node = new group.GroupCoordinatorClient(this.bootstrap, this.credentials);
    try {
      const { groupId } = this;
      const found = await called<group.FindCoordinatorResponse>((rest, done) =>
        node.findCoordinator({ groupId }, ...rest, done),
      );
      if (found.errorCode !== ErrorCode.NONE) throw new Error(found.errorMessage);
      return found.host === "" ? this.bootstrap : `${found.host}:${found.port}`;
    } finally {
      node.close();
    }
  }

  /** The stream has ended, which says nothing about the member: it attaches again. */
  private closed(stream: Stream, isBroken: boolean, afterMs = 0): void {
    if (this.stream !== stream) return;
    this.hangUp();
    if (this.leaving) return this.stop("it has left"); // If that was not heard, its lease ends.
    if (isBroken) this.address = undefined;
    this.retry(afterMs);
  }

  private hangUp(): void {
    const { stream, client } = this;
    this.stream = this.client = undefined;
    clearInterval(this.beating);
    stream?.on("error", () => {});
    stream?.cancel();
    client?.close();
  }

  private retry(afterMs = 0): void {
    if (this.isStopped) return;
    const growing = Math.min(RETRY_MS * 2 ** this.retries++, MAX_RETRY_MS);
    const most = Math.min(growing, this.leaseMs / 10 || growing);
    setTimeout(() => void this.open(), Math.max(afterMs, most * Math.random()));
  }

  private stop(reason: string): void {
    if (this.isStopped) return;
    this.isStopped = true;
    for (const holding of this.held.values()) this.lose(holding, reason);
    this.hangUp();
    clearInterval(this.watch);
    this.tell({ kind: "stopping", reason });
  }

  // --- What is heard ---

  private hear(said: pb.SessionResponse): void {
    this.heardAt = now();
    if (said.attached) this.attached(said.attached);
    else if (said.heartbeatAck) this.acknowledged(said.heartbeatAck);
    else if (said.wanted) this.wanted(said.wanted);
    else if (said.refused) this.refused(said.refused);
    else if (said.goAway) this.goneAway(said.goAway);
  }

  private attached(attached: pb.Attached): void {
    if (attached.coordinatorEpoch < this.epoch) return;
    this.epoch = attached.coordinatorEpoch;
    this.retries = 0;
    if (attached.sessionId !== this.sessionId) this.number = 0n;
    this.sessionId = attached.sessionId;
    this.memberId = attached.memberId;
    this.leaseMs = attached.leaseMs;
    clearInterval(this.beating);
    this.beating = setInterval(() => this.beat(), attached.heartbeatIntervalMs);
    if (attached.standing === pb.Attached_Standing.WAITING) return;
    if (attached.wanted) this.wanted(attached.wanted, this.attachSentAt);
  }

  private acknowledged({ number, coordinatorEpoch, notRenewed }: pb.SessionHeartbeatAck): void {
    if (coordinatorEpoch < this.epoch) return;
    this.epoch = coordinatorEpoch;
    const sentAt = this.sent.get(number);
    for (const older of this.sent.keys()) if (older <= number) this.sent.delete(older);
    if (sentAt === undefined) return; // An older one moves nothing back.
    for (const { name, partitions } of notRenewed) {
      for (const { first, last } of partitions) {
        for (let partition = first; partition <= last; partition++) {
          const holding = this.held.get(key({ topic: name, partition }));
          if (holding) holding.frozen ??= this.renewed;
        }
      }
    }
    // Too late to renew anything: what is held goes on only with a whole state.
    if (now() - this.renewed >= 0.9 * this.leaseMs) this.askWhole();
    else this.renewed = Math.max(this.renewed, sentAt);
  }

  private refused({ errorCode, errorMessage, retryAfterMs }: pb.SessionRefused): void {
    const name = ErrorCode[errorCode];
    if (FINAL.has(name)) return this.stop(`${name}: ${errorMessage}`);
    if (errorCode === ErrorCode.UNKNOWN_MEMBER_ID) {
      if (this.leaving) return this.stop("it has left");
      for (const holding of [...this.held.values()]) this.lose(holding, "the session has ended");
      for (const preparation of [...this.warming.values()]) this.drop(preparation);
      this.sessionId = "";
      this.epoch = 0n; // Epochs are compared within a session.
      this.held.clear();
    }
    const isElsewhere = errorCode === ErrorCode.NOT_COORDINATOR;
    if (this.stream) this.closed(this.stream, isElsewhere, retryAfterMs);
  }

  private goneAway({ reason, host, port }: pb.GoAway): void {
    if (reason === SUPERSEDED) return this.stop("another process has taken its place");
    if (reason === LEFT || reason === DRAINED) return this.stop("it has left");
    this.address = host === "" ? undefined : `${host}:${port}`;
    if (this.stream) this.closed(this.stream, false);
  }

  /** sentAt: when that was sent which it answers; undefined: it answers nothing. */
  private wanted(wanted: pb.Wanted, sentAt?: number): void {
    if (wanted.answers !== undefined) {
      sentAt = this.asked.get(wanted.answers);
      this.asked.clear();
    }
    if (wanted.coordinatorEpoch < this.epoch) return;
    this.pages.push(wanted);
    if (wanted.isPart) return;
    const { pages } = this;
    this.pages = [];
    const orders = pages.flatMap(ordersOf);
    if (wanted.basedOn !== undefined) {
      if (wanted.basedOn > this.version) return this.askWhole();
      if (wanted.basedOn < this.version) return;
      this.version = wanted.version;
      for (const order of orders) this.carryOut(order, false);
      return;
    }
    this.version = wanted.version;
    const isFresh = sentAt !== undefined && now() - sentAt < 0.9 * this.leaseMs;
    if (isFresh) this.renewed = Math.max(this.renewed, sentAt ?? 0);
    const named = new Set(orders.map(key));
    for (const holding of [...this.held.values()]) {
      if (!named.has(key(holding))) this.lose(holding, "another member may have it");
    }
    for (const preparation of [...this.warming.values()]) {
      if (!named.has(key(preparation))) this.drop(preparation);
    }
    for (const order of orders) this.carryOut(order, isFresh);
  }

  private carryOut(order: Order, isFresh: boolean): void {
    const { topic, partition, token, range, offset } = order;
    const where = key(order);
    let holding = this.held.get(where);
    const preparation = this.warming.get(where);
    if (range.order === WARM) {
      const { handoffId, position = -1n } = range;
      if (preparation?.isReady && preparation.handoffId === handoffId) this.say(preparation);
      if (preparation?.handoffId === handoffId) return;
      if (preparation) this.drop(preparation);
      const next = new Preparation(this, topic, partition, handoffId, offset, position);
      this.warming.set(where, next);
      return this.tell({ kind: "warming", preparation: next });
    }
    if (range.order === LOST) {
      if (preparation) this.drop(preparation);
      const isMine = token === 0n || token === holding?.token;
      if (holding && isMine) this.lose(holding, "it was taken away");
      else if (!holding && token !== 0n) this.repeat(where, token);
      return;
    }
    if (holding && holding.token !== token) {
      this.lose(holding, "it was granted anew");
      this.held.delete(where);
      holding = undefined;
    }
    if (holding === undefined) {
      if (this.repeat(where, token) || range.order === DRAIN) return;
      holding = new Holding(this, topic, partition, token);
      this.warming.delete(where);
      this.done.delete(where);
      this.held.set(where, holding);
      this.tellsHeld = true;
      this.tell({ kind: "granted", holding, offset });
    } else if (isFresh && holding.suspended && !holding.frozen && holding.state !== "lost") {
      holding.suspended = false;
      this.tell({ kind: "resumed", holding });
    }
    holding.paused = range.paused;
    if (range.order === DRAIN && holding.state === "active") {
      const { remainingMs } = range;
      Object.assign(holding, { state: "draining", handoffId: range.handoffId });
      if (remainingMs > 0) holding.drainBy = now() + remainingMs;
      this.tell({ kind: "draining", holding, remainingMs });
    }
  }

  private repeat(where: string, token: bigint): boolean {
    const ack = this.done.get(where);
    if (ack === undefined || ack.token !== token) return false;
    this.send({ ack: { partitions: [ack] } });
    return true;
  }

  private lose(holding: Holding, reason: string): void {
    if (holding.state === "lost" || holding.state === "ended") return;
    holding.state = "lost";
    this.tell({ kind: "lost", holding, reason });
  }

  private drop(preparation: Preparation): void {
    this.warming.delete(key(preparation));
    this.tell({ kind: "dropped", preparation });
  }

  private tell(change: Change): void {
    this.queue.push(change);
    this.wake();
  }

  // --- Time, and what is said ---

  private look(): void {
    const at = now();
    for (const holding of this.held.values()) {
      if (holding.state === "lost" || this.leaseMs === 0) continue;
      if (at >= holding.drainBy) this.lose(holding, "it was not released in time");
      else if (!holding.suspended && !holding.valid) {
        holding.suspended = true;
        this.tell({ kind: "suspended", holding });
      }
    }
    const silentMs = this.leaseMs === 0 ? ANSWER_MS : Math.max(this.leaseMs, 1000);
    if (this.stream && at - this.heardAt > silentMs) this.closed(this.stream, true);
  }

  /** Once: until there is an answer, every heartbeat in time asks again. */
  private askWhole(): void {
    if (this.asked.size === 0) this.beat(true);
  }

  private beat(whole = this.asked.size > 0): void {
    this.number += 1n;
    const { number } = this;
    this.sent.set(number, now());
    if (whole) this.asked.set(number, now());
    const tellsHeld = this.tellsHeld || number % 10n === 0n;
    this.tellsHeld = false;
    this.send({
      heartbeat: {
        ...pb.SessionHeartbeat.fromPartial({}),
        number,
        appliedEpoch: this.epoch,
        appliedVersion: this.version,
        whole,
        progress: BigInt(this.progress),
        held: tellsHeld ? { topics: this.heldTopics() } : undefined,
      },
    });
  }

  private acknowledge(partial: Partial<pb.SessionAck_Partition>): void {
    const ack = { ...pb.SessionAck_Partition.fromPartial({}), ...partial };
    this.tellsHeld = true;
    this.done.set(key(ack), ack);
    this.send({ ack: { partitions: [ack] } });
  }

  private send(request: pb.SessionRequest): void {
    this.stream?.write(request);
  }

  private heldTopics(): pb.HeldTopic[] {
    const byTopic = new Map<string, pb.HeldTopic>();
    for (const { topic, partition, token } of this.held.values()) {
      if (!byTopic.has(topic)) byTopic.set(topic, { name: topic, partitions: [] });
      byTopic.get(topic)?.partitions.push({ first: partition, last: partition, firstToken: token });
    }
    return [...byTopic.values()];
  }
}

type Place = { topic: string; partition: number };
type Order = Place & { token: bigint; offset: bigint; range: pb.Wanted_Range };

function ordersOf(page: pb.Wanted): Order[] {
  return page.topics.flatMap(({ name, ranges }) =>
    ranges.flatMap((range) => {
      const { first = 0, last = -1, firstToken = 0n } = range.partitions ?? {};
      return Array.from({ length: last - first + 1 }, (_, n) => ({
        topic: name,
        partition: first + n,
        token: firstToken === 0n ? 0n : firstToken + BigInt(n),
        offset: range.committedOffsets[n] ?? -1n,
        range,
      }));
    }),
  );
}

function key({ topic, partition }: Place): string {
  return `${topic}-${partition}`;
}

type Rest = [grpc.Metadata, { deadline: number }];

type Done<T> = (error: Error | null, answer: T) => void;

function called<T>(call: (rest: Rest, done: Done<T>) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    const rest: Rest = [new grpc.Metadata(), { deadline: Date.now() + ANSWER_MS }];
    call(rest, (error, answer) => (error === null ? resolve(answer) : reject(error)));
  });
}
