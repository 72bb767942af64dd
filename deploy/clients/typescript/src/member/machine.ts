// A member's machine: all decisions of a member, without I/O; it is told the time.
//
// A driver asks `nextAction` until there is none, carries the actions out, hands each call's
// answer to `handle` and what is said beside to `hear`, and asks again at `nextDeadline`, which is
// exact: without an input nothing changes before it. In between the owner commits, gives back and
// closes, and the driver asks after each input.
//
//   owner ──► handOut, commit, giveBack ──►  ┌─────────┐ ──► nextAction: call, say, cancel, …
//                                            │ machine │
//   driver ──► handle, hear, the time ────►  └─────────┘ ──► nextDeadline, events, operations
//
// The machine has ledger, operations, connection and closing. What to say next to the group, and
// what an answer means, its protocol part decides: `classic/part.ts` or `session/part.ts`.

import { CommitFailed } from "../errors.js";
import { nameOf, type Partitions } from "../partitions.js";
import type { Random } from "./backOff.js";
import {
  type Action,
  type Call,
  type Commit,
  ELSEWHERE,
  type Heard,
  type Next,
  type Request,
  type Result,
} from "./calls.js";
import { ClassicPart } from "./classic/part.js";
import { Discovery } from "./discovery.js";
import type { MemberEvent } from "./events.js";
import type { Holding } from "./ledger.js";
import { CommitOperation, FetchOperation, Operation } from "./operations.js";
import { type GivingBack, LEAVE_TIMEOUT_MS, ProtocolPart } from "./part.js";
import { SessionPart } from "./session/part.js";
import { type MemberConfig, MemberState } from "./state.js";

type Asker = ProtocolPart | Operation;
type Caller = Asker | Discovery | Closing;

/** A close that the owner asked for. */
class Closing {
  hasBegun = false;

  constructor(
    readonly reason: string,
    readonly returnWithinMs: number | undefined,
    /** When it stops waiting: for commits, then for what ends the stream of a session. */
    public untilMs: number | undefined,
  ) {}
}

export class Machine {
  readonly state: MemberState;
  isClosed = false;
  private readonly part: ProtocolPart;
  private readonly discovery: Discovery;
  private operations: Operation[] = [];
  /** Askers with a request to make, in order: each waits until there is a connection. */
  private queue: Asker[] = [];
  private readonly out = new Map<Call, Caller>();
  private closing: Closing | undefined;

  constructor(
    config: MemberConfig,
    bootstrap: readonly string[],
    private readonly random: Random,
  ) {
    this.state = new MemberState(config);
    this.part =
      config.protocol === "classic"
        ? new ClassicPart(this.state, random)
        : new SessionPart(this.state, random);
    this.discovery = new Discovery(config.groupId, bootstrap);
  }

  // --- The owner ---

  get hasEvents(): boolean {
    return !this.state.events.isEmpty;
  }

  get isConnected(): boolean {
    return this.discovery.isConnected;
  }

  /** What the member is to its group, for the log; undefined: nothing now. */
  get standing(): string | undefined {
    return this.part.standing;
  }

  start(nowMs: number): void {
    this.part.start(nowMs);
  }

  /** Events since the last call, `most` of them. From now on the owner holds what they grant. */
  handOut(nowMs: number, most = Infinity): MemberEvent[] {
    this.follow(this.part.passDeadlines(nowMs));
    this.state.progressMs = nowMs;
    const events = this.state.events.take(most);
    this.state.ledger.handOut([]);
    for (const event of events) {
      if (event.kind === "granted") this.state.ledger.handOut(event.holdings);
      else if (event.kind === "revoking") this.part.told(event.holdings);
    }
    return events;
  }

  /** Holdings that the owner knows and may work on, without those that it is to give back. */
  get assignment(): Holding[] {
    return [...this.state.ledger.known(this.part.workable).values()];
  }

  /** True while effects of a holding may leave the process: one comparison, made now. */
  isValid(holding: Holding, nowMs: number): boolean {
    return this.state.ledger.lasts(holding) && this.part.unproven(holding, nowMs) === undefined;
  }

  /** True while new work of a holding may be begun. */
  takesWork(holding: Holding, nowMs: number): boolean {
    return this.state.ledger.lasts(holding) && this.part.takesWork(holding, nowMs);
  }

  /** The owner has finished with some, asked to give them back or not. */
  giveBack(holdings: readonly Holding[], how: GivingBack, nowMs: number): void {
    this.state.progressMs = nowMs;
    this.part.giveBack(holdings, how, nowMs);
  }

  /** The owner has prepared for these. */
  ready(holdings: readonly Holding[]): void {
    this.part.ready(holdings);
  }

  /** Take no more partitions, and hand over what is held. */
  drain(withinMs: number, reason: string, nowMs: number): void {
    this.part.drain(withinMs, reason, nowMs);
  }

  setTopics(topics: ReadonlyMap<string, number>, nowMs: number): void {
    this.part.setTopics(topics, nowMs);
  }

  /**
   * Begin a commit, and determine the holdings that it counts for.
   *
   * @param shown holdings of the caller; undefined: those handed out last.
   * @throws StaleMember: a partition was not handed out. CommitFailed: an offset is negative.
   */
  commit(commit: Commit, shown: readonly Holding[] | undefined, nowMs: number): CommitOperation {
    const negative = commit.entries.filter(({ offset }) => offset < 0n).map(nameOf);
    if (negative.length > 0) {
      throw new CommitFailed(
        `nothing was sent, for an offset is negative: ${negative.sort().join(", ")}`,
        "INVALID_ARGUMENT",
      );
    }
    const claimed = this.state.ledger.claim(commit.entries, shown);
    const operation = new CommitOperation(commit, claimed, this.part, this.random, nowMs);
    this.state.progressMs = nowMs;
    this.operations.push(operation);
    return operation;
  }

  /** Begin a fetch of committed offsets. */
  fetch(partitions: Partitions, nowMs: number): FetchOperation {
    const { groupId } = this.state.config;
    const operation = new FetchOperation(groupId, partitions, this.random, nowMs);
    this.operations.push(operation);
    return operation;
  }

  /**
   * Stop, and leave the group once pending commits are answered, within two seconds.
   *
   * @param returnWithinMs session groups: what is held is kept so long for a process of its name.
   */
  close(reason: string, nowMs: number, returnWithinMs?: number): void {
    this.part.stop(reason);
    this.closing ??= new Closing(reason, returnWithinMs, nowMs + LEAVE_TIMEOUT_MS);
  }

  /** Stop because of a bug; the owner is told. */
  fail(error: Error): void {
    this.part.fail(error);
  }

  // --- The driver ---

  /** The next action; undefined: none before the next input or `nextDeadline`. */
  nextAction(nowMs: number): Action | undefined {
    const { actions, warnings } = this.state;
    this.follow(this.part.passDeadlines(nowMs));
    while (actions.length === 0 && this.takeStep(nowMs));
    const warning = warnings.shift() ?? this.discovery.warning(nowMs);
    if (warning !== undefined) actions.push({ kind: "warn", text: warning });
    return actions.shift();
  }

  /** Take in the answer to a call; those of cancelled ones are not heard. */
  handle(call: Call, result: Result, nowMs: number): void {
    const caller = this.out.get(call);
    if (!this.out.delete(call)) return;
    if (result.kind === "unreachable") this.hangUp(call.connection);
    if (caller instanceof Discovery) {
      const failure = caller.handle(result, nowMs);
      const next = failure && this.queue.shift(); // The others begin a new search.
      if (failure && next) next.handle(failure, nowMs);
      return;
    }
    const codes =
      result.kind === "committed" ? result.codes : "code" in result ? [result.code] : [];
    if (codes.length > 0 && !codes.some((code) => ELSEWHERE.has(code))) this.reached(nowMs);
    if (caller instanceof Closing) this.end();
    else if (caller?.handle(result, nowMs) === "find the coordinator") this.hangUp(call.connection);
  }

  /** Take in what the coordinator says while a call is under way. */
  hear(call: Call, heard: Heard, nowMs: number): void {
    const caller = this.out.get(call);
    if (caller instanceof Closing && (heard.goAway || heard.refused)) this.end();
    if (!(caller instanceof ProtocolPart)) return;
    this.reached(nowMs);
    this.follow(caller.hear(heard, nowMs));
  }

  nextDeadline(): number | undefined {
    const ends = this.operations.map((operation) => operation.nextDeadline());
    ends.push(this.part.nextDeadline());
    if (!this.isClosed) ends.push(this.discovery.nextDeadline(), this.closing?.untilMs);
    const known = ends.filter((end) => end !== undefined);
    return known.length > 0 ? Math.min(...known) : undefined;
  }

  // --- Requests ---

  private takeStep(nowMs: number): boolean {
    if (this.part.mustRepeat) this.repeat(nowMs);
    this.queueWhatIsDue(nowMs);
    if (this.closingIsDue(nowMs)) this.closeFurther(nowMs);
    else if (this.queue.length === 0) return false;
    else if (this.discovery.isConnected) this.attempt(this.queue.shift()!, nowMs);
    else if (this.discovery.isLooking) return false;
    else this.call(this.discovery.look(nowMs), this.discovery);
    return true;
  }

  private queueWhatIsDue(nowMs: number): void {
    if (this.part.isDue(nowMs)) {
      this.part.isOut = true;
      this.queue.push(this.part);
    }
    for (const operation of this.operations) {
      operation.look(nowMs);
      if (operation.dueMs !== undefined && nowMs >= operation.dueMs) {
        operation.dueMs = undefined;
        this.queue.push(operation);
      }
    }
    this.operations = this.operations.filter(({ isDone }) => !isDone);
  }

  private attempt(asker: Asker, nowMs: number): void {
    const request = asker.attempt(nowMs);
    if (request !== undefined) this.call(request, asker);
  }

  /** Give the request of the part that is under way up, and make it anew. */
  private repeat(nowMs: number): void {
    this.part.mustRepeat = false;
    if (!this.part.isOut) return;
    this.cancel(this.part);
    this.part.isOut = false;
    this.part.hurry(nowMs);
  }

  /** Do what the part said beside the end of its request. */
  private follow(next: Next): void {
    const { movedTo } = this.state;
    this.state.movedTo = undefined;
    if (movedTo !== undefined) this.discovery.learn(movedTo);
    if (next === "go on") return;
    this.cancel(this.part);
    if (next === "find the coordinator") this.hangUp(this.discovery.connection);
  }

  private call(request: Request, caller: Caller): void {
    const call: Call = {
      kind: "call",
      request,
      timeoutMs: this.part.timeoutMs(request),
      connection: this.discovery.connection,
    };
    this.out.set(call, caller);
    this.state.actions.push(call);
  }

  private cancel(caller: Caller): void {
    this.queue = this.queue.filter((other) => other !== caller);
    for (const [call, owner] of [...this.out]) {
      if (owner !== caller) continue;
      this.out.delete(call);
      this.state.actions.push({ kind: "cancel", call });
    }
  }

  // --- The connection ---

  private reached(nowMs: number): void {
    const silentMs = this.discovery.answered(nowMs);
    if (silentMs === undefined) return;
    const seconds = (silentMs / 1000).toFixed(1);
    this.state.warnings.push(`coordinator reached again after ${seconds} s`);
  }

  /** Close a connection, unless another has been found since. */
  private hangUp(connection: number): void {
    if (!this.discovery.isConnected || connection !== this.discovery.connection) return;
    this.discovery.isConnected = false;
    this.state.actions.push({ kind: "hang up" });
  }

  private closingIsDue(nowMs: number): boolean {
    const { closing } = this;
    if (closing === undefined || this.isClosed) return false;
    if (closing.untilMs !== undefined && nowMs >= closing.untilMs) return true;
    const commits = this.operations.some((one) => one instanceof CommitOperation && !one.isDone);
    return !closing.hasBegun && !commits;
  }

  /** Leave; or go without a word, if nobody hears it or the answer does not come. */
  private closeFurther(nowMs: number): void {
    const closing = this.closing!;
    if (closing.hasBegun) return this.end();
    closing.hasBegun = true;
    closing.untilMs = undefined;
    const leave = this.discovery.isConnected
      ? this.part.leave(closing.reason, closing.returnWithinMs)
      : undefined;
    if (leave === "said") {
      closing.untilMs = nowMs + LEAVE_TIMEOUT_MS;
      for (const [call, caller] of this.out) if (caller === this.part) this.out.set(call, closing);
      return;
    }
    this.cancel(this.part);
    if (leave !== undefined) this.call(leave, closing);
    else this.end();
  }

  private end(): void {
    if (this.queue.length === 0) this.cancel(this.discovery);
    this.hangUp(this.discovery.connection);
    this.isClosed = true;
  }
}
