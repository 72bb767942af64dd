// The driver: carries the actions of a member's machine out. It makes the machine's calls, hands
// the answers in, asks again at the machine's next deadline, and tells its owner of events at once.

import type { Clock } from "../clock.js";
import { errorText, type Logger } from "../log.js";
import type { Call, Commit } from "../machine/calls.js";
import { eventText, type RebalanceEvent } from "../machine/events.js";
import type { Holding } from "../machine/holdings.js";
import type { Machine } from "../machine/machine.js";
import type { Operation } from "../machine/operations.js";
import type { Partitions, TopicPartition } from "../partitions.js";
import type { Transport } from "../transport/transport.js";

const BLOCKED_MS = 1_000;

export type MemberPhase = "connecting" | Machine["membership"]["phase"];

export class Member {
  private readonly waiting = new Map<Operation, () => void>();
  private cancelTimer = (): void => {};
  private wakesAtMs: number | undefined;
  private isTurning = false;
  private mustTurnAgain = false;
  private hasClosed = (): void => {};
  private readonly closed = new Promise<void>((resolve) => (this.hasClosed = resolve));
  private saidGeneration = -1;
  private saidPhase: MemberPhase = "connecting";
  private sinceMs: number;

  constructor(
    private readonly machine: Machine,
    private readonly transport: Transport,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly onEvents: (events: readonly RebalanceEvent[]) => void,
  ) {
    this.sinceMs = clock.now();
  }

  // --- The owner ---

  start(): void {
    this.machine.start(this.clock.now());
    this.turn();
  }

  /** Since when the member is in its phase, in epoch milliseconds. */
  get state(): { phase: MemberPhase; since: number } {
    return { phase: this.saidPhase, since: this.sinceMs };
  }

  /** The holding that was handed out last. */
  holding(partition: TopicPartition): Holding {
    return this.machine.membership.holdings.of(partition);
  }

  holds(holding: Holding): boolean {
    return this.machine.membership.holdings.lasts(holding);
  }

  /** Store; resolves when it is durable. Rejects with CommitFailed, a kind of it, or Unavailable. */
  async commit(commit: Commit, holdings: readonly Holding[]): Promise<void> {
    await this.resultOf(this.machine.commit(commit, holdings, this.clock.now()));
  }

  /** Committed offsets by partition's name; -1n: none. */
  async committed(partitions: Partitions): Promise<ReadonlyMap<string, bigint>> {
    const operation = this.machine.fetch(partitions, this.clock.now());
    await this.resultOf(operation);
    return operation.offsets;
  }

  /** The handlers of these have ended, asked to or not. */
  giveBack(partitions: Partitions, reason: string): void {
    this.machine.giveBack(partitions, reason, this.clock.now());
    this.turn();
  }

  /** Take no more partitions from the next join on. */
  drain(): void {
    this.machine.drain();
  }

  setTopics(topics: ReadonlyMap<string, number>): void {
    this.machine.setTopics(topics, this.clock.now());
    this.turn();
  }

  /**
   * Stop, and leave the group; resolves within two seconds.
   *
   * @param done what the owner has finished with; what else it has is lost.
   */
  async close(reason: string, done: Partitions): Promise<void> {
    this.machine.giveBack(done, "it was given back", this.clock.now());
    this.machine.close(reason, this.clock.now());
    this.turn();
    await this.closed;
    this.cancelTimer();
  }

  // --- Inside ---

  private turn(nowMs = this.clock.now()): void {
    this.mustTurnAgain = true;
    if (this.isTurning) return; // The turn under way sees to it.
    this.isTurning = true;
    while (this.mustTurnAgain) {
      this.mustTurnAgain = false;
      this.carryOutAll(nowMs);
      this.report();
      for (const [operation, resolve] of [...this.waiting]) {
        if (!operation.isDone) continue;
        this.waiting.delete(operation);
        resolve();
      }
      if (this.machine.hasEvents) this.handOut(nowMs);
    }
    this.isTurning = false;
    this.setTimer();
    if (this.machine.isClosed) this.hasClosed();
  }

  private carryOutAll(nowMs: number): void {
    try {
      for (let action; (action = this.machine.nextAction(nowMs)) !== undefined;) {
        if (action.kind === "call") void this.call(action);
        else if (action.kind === "cancel") this.transport.cancel(action.call);
        else if (action.kind === "hang up") this.transport.hangUp();
        else this.logger.warn(action.text);
      }
    } catch (error) {
      this.machine.fail(error as Error); // A bug or an assignor: the owner is told.
      this.mustTurnAgain = true;
    }
  }

  private handOut(nowMs: number): void {
    const events = this.machine.handOut(nowMs);
    for (const event of events) {
      const line = eventText(event, nowMs);
      const isBad = event.kind === "lost" || this.machine.membership.failure !== undefined;
      if (isBad) this.logger.warn(line);
      else if (event.kind === "stopping") this.logger.debug(line);
      else this.logger.info(line);
    }
    this.onEvents(events);
    this.mustTurnAgain = true;
  }

  private async call(call: Call): Promise<void> {
    const { request } = call;
    this.logger.debug(`${request.kind}: sent`);
    const result = await this.transport.carryOut(call);
    const outcome = "code" in result ? result.code : result.kind;
    this.logger.debug(`${request.kind}: ${"detail" in result ? result.detail : outcome}`);
    try {
      this.machine.handle(call, result, this.clock.now());
    } catch (error) {
      this.logger.warn(`the answer to ${request.kind} cannot be used: ${errorText(error)}`);
      this.machine.fail(error as Error);
    }
    this.turn();
  }

  private resultOf(operation: Operation): Promise<void> {
    return new Promise((resolve, reject) => {
      this.waiting.set(operation, () => {
        if (operation.error === undefined) resolve();
        else reject(operation.error);
      });
      this.turn();
    });
  }

  /** Say what has changed, and since when. */
  private report(): void {
    const { phase, generation, isLeader, memberId, isInSession } = this.machine.membership;
    const said =
      phase === "joining" && memberId === "" && !this.machine.isConnected ? "connecting" : phase;
    if (said !== this.saidPhase) {
      this.saidPhase = said;
      this.sinceMs = this.clock.now();
    }
    if (!isInSession || generation === this.saidGeneration) return;
    this.saidGeneration = generation;
    this.logger.info(`joined generation ${generation}${isLeader ? " as its leader" : ""}`);
  }

  private setTimer(): void {
    const deadlineMs = this.machine.isClosed ? undefined : this.machine.nextDeadline();
    if (deadlineMs === this.wakesAtMs) return;
    this.cancelTimer();
    this.wakesAtMs = deadlineMs;
    if (deadlineMs === undefined) return;
    const ms = Math.max(0, deadlineMs - this.clock.now());
    this.cancelTimer = this.clock.timer(ms, () => this.wake(deadlineMs));
  }

  private wake(deadlineMs: number): void {
    this.wakesAtMs = undefined;
    const lateMs = this.clock.now() - deadlineMs;
    if (lateMs > BLOCKED_MS) {
      this.logger.warn(`the event loop was blocked for ${lateMs} ms, and heartbeats with it`);
    }
    // Clocks round: never report a time before the deadline.
    this.turn(Math.max(this.clock.now(), deadlineMs));
  }
}
