// The driver: carries the actions of a member's machine out. It makes the machine's calls, hands
// in what is answered and said, and asks again at the machine's next deadline.

import type { Clock } from "../clock.js";
import { errorText, type Logger } from "../log.js";
import type { Transport } from "../transport/transport.js";
import type { Call } from "./calls.js";
import type { Machine } from "./machine.js";
import type { Operation } from "./operations.js";
import type { Phase } from "./state.js";

const BLOCKED_MS = 1_000;

/** `connecting`: it has not reached a coordinator yet. */
export type MemberPhase = "connecting" | Phase;

export class Driver {
  phase: MemberPhase = "connecting";
  /** Since when the member is in its phase, in epoch milliseconds. */
  sinceMs: number;
  /** Resolves when the member has left. */
  readonly closed: Promise<void>;
  private readonly waiting = new Map<Operation, () => void>();
  private cancelTimer = (): void => {};
  private wakesAtMs: number | undefined;
  private isTurning = false;
  private mustTurnAgain = false;
  private hasClosed = (): void => {};
  private saidStanding: string | undefined;

  /** @param onTurn called after each turn, when there may be events. */
  constructor(
    private readonly machine: Machine,
    private readonly transport: Transport,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly onTurn: () => void,
  ) {
    this.sinceMs = clock.now();
    this.closed = new Promise<void>((resolve) => (this.hasClosed = resolve));
  }

  /** Resolves when the operation has ended well; rejects with its error. */
  resultOf(operation: Operation): Promise<void> {
    return new Promise((resolve, reject) => {
      this.waiting.set(operation, () => {
        if (operation.error === undefined) resolve();
        else reject(operation.error);
      });
      this.turn();
    });
  }

  /** Carry out what is due, after an input of the owner. */
  turn(nowMs = this.clock.now()): void {
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
    }
    this.isTurning = false;
    this.setTimer();
    if (this.machine.isClosed) this.hasClosed();
    this.onTurn();
  }

  private carryOutAll(nowMs: number): void {
    try {
      for (let action; (action = this.machine.nextAction(nowMs)) !== undefined;) {
        if (action.kind === "call") void this.call(action);
        else if (action.kind === "say") this.transport.say(action.said);
        else if (action.kind === "cancel") this.transport.cancel(action.call);
        else if (action.kind === "hang up") this.transport.hangUp();
        else this.logger.warn(action.text);
      }
    } catch (error) {
      this.machine.fail(error as Error); // A bug or an assignor: the owner is told.
      this.mustTurnAgain = true;
    }
  }

  private async call(call: Call): Promise<void> {
    const { request } = call;
    this.logger.debug(`${request.kind}: sent`);
    const result = await this.transport.carryOut(call, (heard) => {
      this.input(request.kind, (nowMs) => this.machine.hear(call, heard, nowMs));
    });
    const outcome = "code" in result ? result.code : result.kind;
    this.logger.debug(`${request.kind}: ${"detail" in result ? result.detail : outcome}`);
    this.input(request.kind, (nowMs) => this.machine.handle(call, result, nowMs));
  }

  private input(kind: string, input: (nowMs: number) => void): void {
    try {
      input(this.clock.now());
    } catch (error) {
      this.logger.warn(`the answer to ${kind} cannot be used: ${errorText(error)}`);
      this.machine.fail(error as Error);
    }
    this.turn();
  }

  /** Say what has changed, and since when. */
  private report(): void {
    const { standing, isConnected } = this.machine;
    const { phase, memberId } = this.machine.state;
    const isNew = phase === "joining" || phase === "attaching";
    const said = isNew && memberId === "" && !isConnected ? "connecting" : phase;
    if (said !== this.phase) {
      this.phase = said;
      this.sinceMs = this.clock.now();
    }
    if (standing === undefined || standing === this.saidStanding) return;
    this.saidStanding = standing;
    this.logger.info(standing);
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
