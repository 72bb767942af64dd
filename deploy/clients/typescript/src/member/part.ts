// The protocol part of a member: which request is next, when, and what an answer means. There are
// two, `classic/` and `session/`; the machine treats them alike. One request of a part is under way
// at a time; the owner's commits run beside it.

import { CoordinatorError, FatalError } from "../errors.js";
import { BackOff, type Random } from "./backOff.js";
import type { Commit, Failure, Heard, Identity, Next, Reply, Request, Result } from "./calls.js";
import type { Holding } from "./ledger.js";
import type { MemberState } from "./state.js";

const CALL_TIMEOUT_MS = 10_000;
const FINDS_A_SESSION = 10;
const FIND_LEAST_MS = 1_000; // To connect takes some round trips.
export const LEAVE_TIMEOUT_MS = 2_000;

/** What a part does with what its owner has finished with. */
export interface GivingBack {
  readonly reason: string;
  /** Session groups, mode copy: up to where the next holder may prepare. */
  readonly position?: bigint | undefined;
  /** The owner will not have it for a while, whoever else does. */
  readonly isRefused?: boolean;
}

export abstract class ProtocolPart {
  /** True while a request is under way. */
  isOut = false;
  /** True if the request under way says what is so no longer: it is to be given up and made anew. */
  mustRepeat = false;
  protected readonly backOff: BackOff;
  protected isBackingOff = false;
  protected sentMs = 0;
  private isStarted = false;
  private dueMs = 0;

  constructor(
    readonly state: MemberState,
    random: Random,
    mostMs: number,
  ) {
    this.backOff = new BackOff(random, mostMs);
  }

  // --- Steps ---

  start(nowMs: number): void {
    this.isStarted = true;
    this.dueMs = nowMs;
  }

  /** Take the next step at once; while a request is under way, its answer decides. */
  hurry(nowMs: number): void {
    this.dueMs = nowMs;
  }

  isDue(nowMs: number): boolean {
    const dueMs = this.stepDue();
    return dueMs !== undefined && nowMs >= dueMs;
  }

  nextDeadline(): number | undefined {
    const ends = [this.deadline(), this.stepDue()].filter((end) => end !== undefined);
    return ends.length > 0 ? Math.min(...ends) : undefined;
  }

  /** The next request; undefined: there is none to make any more. */
  attempt(nowMs: number): Request | undefined {
    this.sentMs = nowMs;
    if (this.state.phase !== "stopped") return this.request(nowMs);
    this.isOut = false;
    return undefined;
  }

  /** Take in the end of its request. */
  handle(result: Result, nowMs: number): Next {
    const next =
      "detail" in result || result.kind === "broken"
        ? this.failed(result, nowMs)
        : this.answered(result, nowMs);
    return this.plan(next, nowMs, result.kind === "no room" ? result.afterMs : 0);
  }

  /** How long to wait for the answer to a request; undefined: for any time. */
  timeoutMs(request: Request): number | undefined {
    switch (request.kind) {
      case "find": {
        const shareMs = Math.floor(this.patienceMs / FINDS_A_SESSION);
        return Math.min(Math.max(shareMs, FIND_LEAST_MS), CALL_TIMEOUT_MS);
      }
      case "leave":
        return LEAVE_TIMEOUT_MS;
      case "attach":
        return undefined;
      default:
        return CALL_TIMEOUT_MS;
    }
  }

  /** Request over: what follows, and when. */
  protected plan(next: Next, nowMs: number, afterMs = 0): Next {
    this.isOut = false;
    this.isBackingOff = next !== "go on";
    // A failed heartbeat is repeated after the back-off alone: the session is running out.
    if (this.isBackingOff) this.dueMs = nowMs + afterMs + this.backOff.nextMs();
    else {
      this.backOff.reset();
      this.dueMs = nowMs + this.pauseMs;
    }
    return next;
  }

  private failed(failure: Failure, nowMs: number): Next {
    if (failure.kind === "broken") this.fail(failure.error);
    else if (failure.kind === "refused" && failure.code === "INVALID_ARGUMENT") {
      this.fail(new CoordinatorError(failure.detail, failure.code));
    } else if (failure.kind === "refused" && this.isTurnedAway(failure.code)) {
      this.fail(new FatalError(failure.detail, failure.code));
    } else {
      this.unreachable(nowMs);
      const isThere = failure.kind === "dropped" || failure.kind === "no room";
      return isThere ? "pause" : "find the coordinator";
    }
    return "go on";
  }

  /** A token may be about to be renewed: a member of the group stays one for its session. */
  private isTurnedAway(code: string): boolean {
    const { phase, memberId } = this.state;
    return code !== "UNAUTHENTICATED" || phase === "joining" || memberId === "";
  }

  private stepDue(): number | undefined {
    const isIdle = this.isOut || !this.isStarted || this.state.phase === "stopped";
    return isIdle ? undefined : this.dueMs;
  }

  // --- The end ---

  fail(error: Error, reason = `failed: ${error.message}`): void {
    this.state.failure ??= error;
    this.stop(reason);
  }

  /** Partitions still held are lost. */
  stop(reason: string): void {
    const { state } = this;
    if (state.phase === "stopped") return;
    this.lose(reason);
    state.phase = "stopped";
    state.events.push({ kind: "stopping", reason, error: state.failure });
  }

  // --- What the protocols decide ---

  /** Names of the partitions to work on, without those that are to be given back. */
  abstract readonly workable: ReadonlyMap<string, unknown>;
  /** True while a commit had better wait for the next assignment. */
  abstract readonly isBetweenAssignments: boolean;
  /** Said in the log when it changes. */
  abstract readonly standing: string | undefined;
  /** Silence of the coordinator that costs the partitions. */
  protected abstract readonly patienceMs: number;
  /** Before the next step, if all is well. */
  protected abstract readonly pauseMs: number;

  protected abstract request(nowMs: number): Request;
  protected abstract answered(reply: Reply, nowMs: number): Next;
  /** Take in what the coordinator says beside; "go on": the request stays under way. */
  abstract hear(heard: Heard, nowMs: number): Next;
  /** Do what is due by now; anything but "go on": the request under way is given up. */
  abstract passDeadlines(nowMs: number): Next;
  /** When `passDeadlines` has something to do. */
  protected abstract deadline(): number | undefined;
  /** Nobody has answered; it may be too late for what is held. */
  protected abstract unreachable(nowMs: number): void;
  /** All that is held is lost. */
  protected abstract lose(reason: string): void;

  abstract identity(): Identity;
  /** Why a holding that lasts cannot be proved now; undefined: it can. */
  abstract unproven(holding: Holding, nowMs: number): string | undefined;
  /** True while new work of a holding may be begun. */
  abstract takesWork(holding: Holding, nowMs: number): boolean;
  /** A commit, with what proves its holdings. */
  abstract commit(commit: Commit, claimed: readonly Holding[]): Request;
  /** A commit was refused because of a rebalance that is not heard of yet. */
  abstract rebalance(nowMs: number): void;

  /** The owner is told of these. */
  abstract told(revoking: readonly Holding[]): void;
  abstract giveBack(holdings: readonly Holding[], how: GivingBack, nowMs: number): void;
  /** The owner has prepared for these. */
  abstract ready(holdings: readonly Holding[]): void;
  abstract setTopics(topics: ReadonlyMap<string, number>, nowMs: number): void;
  /** Take no more partitions, and hand over what is held. */
  abstract drain(withinMs: number, reason: string, nowMs: number): void;
  /**
   * Leave: a request for that; "said": on the stream, whose end is the answer; undefined: there is
   * nobody to tell, or it keeps its place.
   */
  abstract leave(reason: string, returnWithinMs: number | undefined): Request | "said" | undefined;
}
