// A member's machine: all decisions of a member, without I/O; it is told the time.
//
// A driver asks `nextAction` until there is none, carries the actions out, hands each call's
// answer to `handle`, and asks again at `nextDeadline`, which is exact: without an input nothing
// changes before it. In between the owner commits, gives back and closes, and the driver asks
// after each input.
//
//   owner ──► handOut, commit, giveBack ──►  ┌─────────┐ ──► nextAction: call, cancel, hang up, warn
//                                            │ machine │
//   driver ──► handle(answer), the time ──►  └─────────┘ ──► nextDeadline, events, operations

import { CommitFailed } from "../errors.js";
import { nameOf, type Partitions } from "../partitions.js";
import type { Random } from "./backOff.js";
import {
  type Action,
  type Call,
  type Commit,
  ELSEWHERE,
  type Request,
  type Result,
} from "./calls.js";
import type { MemberConfig } from "./config.js";
import { Discovery } from "./discovery.js";
import type { RebalanceEvent } from "./events.js";
import type { Holding } from "./holdings.js";
import { Membership, type Phase } from "./membership.js";
import { CommitOperation, FetchOperation, Operation } from "./operations.js";
import { LEAVE_TIMEOUT_MS, Schedule, timeoutMs } from "./schedule.js";

type Asker = Schedule | Operation;
type Caller = Asker | Discovery | Closing;

/** A close that the owner asked for. `untilMs`: when it stops waiting for commits. */
class Closing {
  hasBegun = false;

  constructor(
    readonly reason: string,
    readonly leaves: boolean,
    readonly untilMs: number,
  ) {}
}

export class Machine {
  readonly membership: Membership;
  isClosed = false;
  private readonly schedule: Schedule;
  private readonly discovery: Discovery;
  private operations: Operation[] = [];
  /** Askers with a request to make, in order: each waits until there is a connection. */
  private queue: Asker[] = [];
  private readonly out = new Map<Call, Caller>();
  private readonly actions: Action[] = [];
  private closing: Closing | undefined;

  constructor(
    readonly config: MemberConfig,
    bootstrap: readonly string[],
    private readonly random: Random,
  ) {
    this.membership = new Membership(config);
    this.schedule = new Schedule(this.membership, random);
    this.discovery = new Discovery(config.groupId, bootstrap);
  }

  // --- The owner ---

  get hasEvents(): boolean {
    return !this.membership.events.isEmpty;
  }

  get isConnected(): boolean {
    return this.discovery.isConnected;
  }

  start(nowMs: number): void {
    this.schedule.start(nowMs);
  }

  /** Events since the last call. From now on the owner holds what they assign. */
  handOut(nowMs: number): RebalanceEvent[] {
    return this.membership.handOut(nowMs);
  }

  /** The owner has finished with all that `handOut` told it is being revoked. */
  finished(nowMs: number): void {
    this.moving(nowMs, () => this.membership.finished(nowMs));
  }

  /** The owner has finished with some, asked to give them back or not. */
  giveBack(partitions: Partitions, reason: string, nowMs: number): void {
    this.moving(nowMs, () => this.membership.giveBack(partitions, reason, nowMs));
  }

  /** Take no more partitions from the next join on. */
  drain(): void {
    this.membership.isDraining = true;
  }

  setTopics(topics: ReadonlyMap<string, number>, nowMs: number): void {
    this.moving(nowMs, () => this.membership.setTopics(topics, nowMs));
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
    const claimed = this.membership.holdings.claim(commit.entries, shown);
    const operation = new CommitOperation(commit, claimed, this.membership, this.random, nowMs);
    this.operations.push(operation);
    return operation;
  }

  /** Begin a fetch of committed offsets. */
  fetch(partitions: Partitions, nowMs: number): FetchOperation {
    const operation = new FetchOperation(this.config.groupId, partitions, this.random, nowMs);
    this.operations.push(operation);
    return operation;
  }

  /** Stop, and leave the group once pending commits are answered, within two seconds. */
  close(reason: string, nowMs: number): void {
    this.membership.stop(reason);
    // A static member's place is kept for the process that comes back under its instance id.
    const leaves = this.config.instanceId === undefined;
    this.closing ??= new Closing(reason, leaves, nowMs + LEAVE_TIMEOUT_MS);
  }

  // --- The driver ---

  /** The next action; undefined: none before the next input or `nextDeadline`. */
  nextAction(nowMs: number): Action | undefined {
    this.schedule.passDeadlines(nowMs);
    while (this.actions.length === 0 && this.takeStep(nowMs));
    const warning = this.membership.warnings.shift() ?? this.discovery.warning(nowMs);
    if (warning !== undefined) this.actions.push({ kind: "warn", text: warning });
    return this.actions.shift();
  }

  /** Take in the answer to a call; those of cancelled ones are not heard. */
  handle(call: Call, result: Result, nowMs: number): void {
    const caller = this.out.get(call);
    if (!this.out.delete(call)) return;
    if (result.kind === "unreachable") this.hangUp(call.connection);
    if (caller instanceof Discovery) {
      const failure = caller.handle(result, nowMs);
      const next = failure && this.queue.shift(); // The others begin a new search.
      if (failure && next) this.tell(next, failure, nowMs);
      return;
    }
    this.noteAnswer(result, nowMs);
    if (caller instanceof Closing) this.end();
    else if (caller && this.tell(caller, result, nowMs) === "find the coordinator") {
      this.hangUp(call.connection);
    }
  }

  nextDeadline(): number | undefined {
    const ends = this.operations.map((operation) => operation.nextDeadline());
    ends.push(this.schedule.nextDeadline());
    if (!this.isClosed) ends.push(this.discovery.nextDeadline());
    if (this.closing && !this.closing.hasBegun) ends.push(this.closing.untilMs);
    const known = ends.filter((end) => end !== undefined);
    return known.length > 0 ? Math.min(...known) : undefined;
  }

  /** Stop because of a bug; the owner is told. */
  fail(error: Error): void {
    this.membership.fail(error);
  }

  // --- Requests ---

  private takeStep(nowMs: number): boolean {
    if (this.membership.mustJoinAgain) this.repeatJoin(nowMs);
    this.queueWhatIsDue(nowMs);
    if (this.closingIsDue(nowMs)) this.beginToClose();
    else if (this.queue.length === 0) return false;
    else if (this.discovery.isConnected) this.attempt(this.queue.shift()!, nowMs);
    else if (this.discovery.isLooking) return false;
    else this.call(this.discovery.look(nowMs), this.discovery);
    return true;
  }

  private queueWhatIsDue(nowMs: number): void {
    if (this.schedule.isDue(nowMs)) {
      this.schedule.isOut = true;
      this.queue.push(this.schedule);
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
    const request = this.moving(nowMs, () => asker.attempt(nowMs));
    if (request !== undefined) this.call(request, asker);
  }

  /** Replace the join under way: the member has given partitions back meanwhile. */
  private repeatJoin(nowMs: number): void {
    this.membership.mustJoinAgain = false;
    if (!this.schedule.isOut) return;
    this.cancel(this.schedule);
    this.schedule.isOut = false;
    this.schedule.hurry(nowMs);
  }

  private call(request: Request, caller: Caller): void {
    const call: Call = {
      kind: "call",
      request,
      timeoutMs: timeoutMs(request, this.config),
      connection: this.discovery.connection,
    };
    this.out.set(call, caller);
    this.actions.push(call);
  }

  private tell(asker: Asker, result: Result, nowMs: number) {
    // The schedule itself knows when its next step is due.
    if (asker === this.schedule) return asker.handle(result, nowMs);
    return this.moving(nowMs, () => asker.handle(result, nowMs));
  }

  /** Take the next step at once if an input has moved the member to another phase. */
  private moving<T>(nowMs: number, input: () => T): T {
    const phase: Phase = this.membership.phase;
    const result = input();
    if (this.membership.phase !== phase) this.schedule.hurry(nowMs);
    return result;
  }

  private cancel(caller: Caller): void {
    this.queue = this.queue.filter((other) => other !== caller);
    for (const [call, owner] of [...this.out]) {
      if (owner !== caller) continue;
      this.out.delete(call);
      this.actions.push({ kind: "cancel", call });
    }
  }

  // --- The connection ---

  private noteAnswer(result: Result, nowMs: number): void {
    const codes =
      result.kind === "committed" ? result.codes : "code" in result ? [result.code] : [];
    if (codes.length === 0 || codes.some((code) => ELSEWHERE.has(code))) return;
    const silentMs = this.discovery.answered(nowMs);
    if (silentMs === undefined) return;
    const seconds = (silentMs / 1000).toFixed(1);
    this.membership.warnings.push(`coordinator reached again after ${seconds} s`);
  }

  /** Close a connection, unless another has been found since. */
  private hangUp(connection: number): void {
    if (!this.discovery.isConnected || connection !== this.discovery.connection) return;
    this.discovery.isConnected = false;
    this.actions.push({ kind: "hang up" });
  }

  private closingIsDue(nowMs: number): boolean {
    if (this.closing === undefined || this.closing.hasBegun) return false;
    const commits = this.operations.some((one) => one instanceof CommitOperation && !one.isDone);
    return nowMs >= this.closing.untilMs || !commits;
  }

  private beginToClose(): void {
    const closing = this.closing!;
    closing.hasBegun = true;
    this.cancel(this.schedule);
    const leave = closing.leaves ? this.membership.leave(closing.reason) : undefined;
    if (leave !== undefined && this.discovery.isConnected) this.call(leave, closing);
    else this.end();
  }

  private end(): void {
    if (this.queue.length === 0) this.cancel(this.discovery);
    this.hangUp(this.discovery.connection);
    this.isClosed = true;
  }
}
