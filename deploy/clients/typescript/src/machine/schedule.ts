// The schedule of a member's protocol requests: which is next, when, and how failures are handled.
// One request of the protocol is under way at a time; the owner's commits run beside it.

import { CoordinatorError, FatalError } from "../errors.js";
import { BackOff, type Random } from "./backOff.js";
import type { Failure, Next, Request, Result } from "./calls.js";
import type { MemberConfig } from "./config.js";
import type { Membership } from "./membership.js";

const CALL_TIMEOUT_MS = 10_000;
const BEATS_A_SESSION = 4; // That many may fail in a row before the session ends.
const FINDS_A_SESSION = 10;
const JOIN_GRACE_MS = 5_000; // As Kafka's client adds to the rebalance time-out.
export const LEAVE_TIMEOUT_MS = 2_000;

/** How long to wait for the answer to a request. */
export function timeoutMs(request: Request, config: MemberConfig): number {
  switch (request.kind) {
    case "join":
    case "sync":
      return config.rebalanceTimeoutMs + JOIN_GRACE_MS;
    case "beat":
      // A node that was stopped never answers: leave time to find its successor.
      return Math.min(Math.floor(config.sessionTimeoutMs / BEATS_A_SESSION), CALL_TIMEOUT_MS);
    case "find":
      return Math.min(Math.floor(config.sessionTimeoutMs / FINDS_A_SESSION), CALL_TIMEOUT_MS);
    case "leave":
      return LEAVE_TIMEOUT_MS;
    default:
      return CALL_TIMEOUT_MS;
  }
}

export class Schedule {
  /** True while a request is under way. */
  isOut = false;
  private readonly backOff: BackOff;
  private isBackingOff = false;
  private isStarted = false;
  private dueMs = 0;
  private sentAtMs = 0;

  constructor(
    private readonly membership: Membership,
    random: Random,
  ) {
    // Several attempts fit into a session, whose end costs the partitions.
    this.backOff = new BackOff(random, Math.min(5_000, membership.config.sessionTimeoutMs / 6));
  }

  start(nowMs: number): void {
    this.isStarted = true;
    this.dueMs = nowMs;
  }

  /** Take the next step at once; while a request is under way, its answer decides. */
  hurry(nowMs: number): void {
    this.dueMs = nowMs;
  }

  nextDeadline(): number | undefined {
    const ends = [this.membership.nextDeadline(), this.stepDue()];
    const known = ends.filter((end) => end !== undefined);
    return known.length > 0 ? Math.min(...known) : undefined;
  }

  passDeadlines(nowMs: number): void {
    const { phase } = this.membership;
    this.membership.passDeadlines(nowMs);
    if (this.membership.phase !== phase && !this.isBackingOff) this.hurry(nowMs);
  }

  isDue(nowMs: number): boolean {
    const dueMs = this.stepDue();
    return dueMs !== undefined && nowMs >= dueMs;
  }

  /** The next request; undefined: there is none to make any more. */
  attempt(nowMs: number): Request | undefined {
    this.sentAtMs = nowMs;
    switch (this.membership.phase) {
      case "joining":
        return this.membership.join();
      case "syncing":
        return this.membership.sync();
      case "stable":
      case "revoking":
        return this.membership.beat();
      case "stopped":
        this.isOut = false;
        return undefined;
    }
  }

  handle(result: Result, nowMs: number): Next {
    this.isOut = false;
    let next: Next;
    let afterMs = 0;
    if (result.kind === "joined") next = this.membership.joined(result);
    else if (result.kind === "synced") next = this.membership.synced(result, this.sentAtMs, nowMs);
    else if (result.kind === "acknowledged") {
      next = this.membership.beaten(result, this.sentAtMs, nowMs);
    } else {
      next = this.failed(result as Failure, nowMs);
      if (result.kind === "no room") afterMs = result.afterMs;
    }
    this.isBackingOff = next !== "go on";
    if (this.isBackingOff) {
      // A failed heartbeat is repeated after the back-off alone: the session is running out.
      this.dueMs = nowMs + afterMs + this.backOff.nextMs();
    } else {
      this.backOff.reset();
      const { isInSession, config } = this.membership;
      this.dueMs = nowMs + (isInSession ? config.heartbeatIntervalMs : 0);
    }
    return next;
  }

  private failed(failure: Failure, nowMs: number): Next {
    const { membership } = this;
    if (failure.kind === "broken") membership.fail(failure.error);
    else if (failure.kind === "refused" && failure.code === "INVALID_ARGUMENT") {
      membership.fail(new CoordinatorError(failure.detail, failure.code));
    } else if (failure.kind === "refused" && this.isTurnedAway(failure.code)) {
      membership.fail(new FatalError(failure.detail, failure.code));
    } else {
      membership.unreachable(nowMs);
      const isThere = failure.kind === "dropped" || failure.kind === "no room";
      return isThere ? "pause" : "find the coordinator";
    }
    return "go on";
  }

  /** A token may be about to be renewed: a member of the group stays one for its session. */
  private isTurnedAway(code: string): boolean {
    return code !== "UNAUTHENTICATED" || this.membership.phase === "joining";
  }

  private stepDue(): number | undefined {
    const isIdle = this.isOut || !this.isStarted || this.membership.phase === "stopped";
    return isIdle ? undefined : this.dueMs;
  }
}
