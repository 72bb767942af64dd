// Operations: commits and fetches of the owner, retried until an answer is final.
//
// An operation makes one attempt at a time. In between it pauses until `dueMs`, or, if it is a
// commit, waits until the member has its assignment (`isWaiting`).

import {
  CommitFailed,
  CoordinatorError,
  OffsetMismatch,
  RebalanceInProgress,
  StaleMember,
  Unavailable,
} from "../errors.js";
import { nameOf, type Partitions } from "../partitions.js";
import { BackOff, type Random } from "./backOff.js";
import {
  type Commit,
  type Committed,
  ELSEWHERE,
  type Next,
  type Request,
  type Result,
} from "./calls.js";
import type { Holding } from "./ledger.js";
import type { ProtocolPart } from "./part.js";

const GIVE_UP_MS = 30_000;
const RETRIABLE: ReadonlySet<string> = new Set([...ELSEWHERE, "COORDINATOR_LOAD_IN_PROGRESS"]);
const STALE: ReadonlySet<string> = new Set([
  "UNKNOWN_MEMBER_ID",
  "ILLEGAL_GENERATION",
  "FENCED_INSTANCE_ID",
  "GROUP_ID_NOT_FOUND",
  "FENCED_TOKEN", // Another member holds the partition.
]);

export abstract class Operation {
  error: Error | undefined;
  isDone = false;
  isOut = false;
  /** When the next attempt is made; undefined: one is under way, or it waits. */
  dueMs: number | undefined;
  /** True if an attempt without an answer may have been carried out. */
  protected isRepeated = false;
  protected giveUpMs = 0;
  private backOff: BackOff;

  constructor(
    private readonly random: Random,
    nowMs: number,
  ) {
    this.backOff = new BackOff(random);
    this.askAnew(nowMs);
  }

  /** The request of an attempt; undefined: the operation has ended instead. */
  attempt(nowMs: number): Request | undefined {
    this.look(nowMs);
    if (this.isDone) return undefined;
    this.isOut = true;
    return this.request();
  }

  handle(result: Result, nowMs: number): Next {
    this.isOut = false;
    switch (result.kind) {
      case "broken":
        this.end(result.error);
        return "go on";
      case "refused":
        this.end(new CommitFailed(result.detail, result.code));
        return "go on";
      case "no room":
        this.tryAgain(`no coordinator answered: ${result.detail}`, nowMs, result.afterMs);
        return "go on";
      case "unreachable":
      case "dropped":
        this.isRepeated = true;
        this.tryAgain(`no coordinator answered: ${result.detail}`, nowMs);
        return result.kind === "dropped" ? "pause" : "find the coordinator";
      default:
        return this.heard(result, nowMs);
    }
  }

  /** Take in changes of the member since the last call. */
  look(_nowMs: number): void {}

  nextDeadline(): number | undefined {
    return this.dueMs;
  }

  end(error?: Error): void {
    this.error = error;
    this.isDone = true;
    this.dueMs = undefined;
  }

  /** Make an attempt now, and begin to count anew. */
  protected askAnew(nowMs: number): void {
    this.dueMs = nowMs;
    this.backOff = new BackOff(this.random);
    this.giveUpMs = nowMs + GIVE_UP_MS;
  }

  private heard(reply: Result, nowMs: number): Next {
    const codes = reply.kind === "committed" ? reply.codes : "code" in reply ? [reply.code] : [];
    if (!codes.some((code) => RETRIABLE.has(code))) {
      try {
        this.answered(reply, nowMs);
      } catch (error) {
        this.end(error as Error);
      }
      return "go on";
    }
    // A write whose outcome the coordinator did not wait for may still become durable.
    this.isRepeated = true;
    const message = "message" in reply ? reply.message : "";
    if (!this.tryAgain(message, nowMs)) return "go on";
    return codes.some((code) => ELSEWHERE.has(code)) ? "find the coordinator" : "pause";
  }

  private tryAgain(trouble: string, nowMs: number, afterMs = 0): boolean {
    if (nowMs >= this.giveUpMs) {
      this.end(new Unavailable(trouble));
      return false;
    }
    this.dueMs = nowMs + afterMs + this.backOff.nextMs();
    return true;
  }

  protected abstract request(): Request;

  /** Take in the final answer; throws if it is a refusal. */
  protected abstract answered(reply: Result, nowMs: number): void;
}

/**
 * A commit, for the holdings that its owner knows: the ledger is asked before each attempt. A
 * cooperative rebalance does not affect a holding that lasts, so a commit that was refused because
 * of one is repeated when the member has its assignment.
 */
export class CommitOperation extends Operation {
  /** True while the member is between assignments, and the commit was refused for that. */
  isWaiting = false;
  private generation = -1;
  private readonly untilMs: number;

  constructor(
    private readonly commit: Commit,
    private readonly claimed: readonly Holding[],
    private readonly part: ProtocolPart,
    random: Random,
    nowMs: number,
  ) {
    super(random, nowMs);
    this.untilMs = this.giveUpMs;
  }

  /**
   * Go on when the member has its assignment; end if a holding has ended, or after a time. An
   * attempt that is under way when a holding ends is left to the coordinator to judge.
   */
  override look(nowMs: number): void {
    if (this.isOut || this.isDone) return;
    try {
      const { ledger } = this.part.state;
      ledger.check(this.claimed, (holding) => this.part.unproven(holding, nowMs));
    } catch (error) {
      this.end(error as Error);
      return;
    }
    if (!this.isWaiting) return;
    if (!this.part.isBetweenAssignments) {
      this.isWaiting = false;
      this.askAnew(nowMs);
    } else if (nowMs >= this.untilMs) {
      this.end(new RebalanceInProgress("the group is still between assignments"));
    }
  }

  override nextDeadline(): number | undefined {
    return this.isWaiting && !this.isDone ? this.untilMs : this.dueMs;
  }

  protected request(): Request {
    this.generation = this.part.state.generation;
    return this.part.commit(this.commit, this.claimed);
  }

  protected answered(reply: Result, nowMs: number): void {
    try {
      judge(reply as Committed, this.commit, this.isRepeated);
    } catch (refusal) {
      if (!(refusal instanceof RebalanceInProgress || refusal instanceof StaleMember))
        throw refusal;
      const { part } = this;
      const isCurrent = this.generation === part.state.generation;
      if (refusal instanceof RebalanceInProgress && isCurrent) part.rebalance(nowMs);
      const hasMoved = part.isBetweenAssignments || !isCurrent;
      const allLast = this.claimed.every((holding) => part.state.ledger.lasts(holding));
      if (!hasMoved || !allLast) throw refusal;
      this.isWaiting = true;
      this.look(nowMs);
      return;
    }
    this.end();
  }
}

/** A fetch of committed offsets; `offsets` is the result, by partition's name, -1n: none. */
export class FetchOperation extends Operation {
  offsets: ReadonlyMap<string, bigint> = new Map();

  constructor(
    private readonly groupId: string,
    private readonly partitions: Partitions,
    random: Random,
    nowMs: number,
  ) {
    super(random, nowMs);
  }

  protected request(): Request {
    return { kind: "fetch", groupId: this.groupId, partitions: this.partitions };
  }

  protected answered(reply: Result): void {
    if (reply.kind !== "fetched") throw new CoordinatorError(`no answer to a fetch: ${reply.kind}`);
    if (reply.code !== "NONE") throw new CoordinatorError(reply.message, reply.code);
    this.offsets = reply.offsets;
    this.end();
  }
}

/** Return if everything is stored; throws CommitFailed or one of its kinds if not. */
function judge(reply: Committed, commit: Commit, isRepeated: boolean): void {
  const refused = reply.codes.find((code) => code !== "NONE" && code !== "OFFSET_MISMATCH");
  if (refused === "REBALANCE_IN_PROGRESS") throw new RebalanceInProgress(reply.message, refused);
  if (refused !== undefined) {
    throw new (STALE.has(refused) ? StaleMember : CommitFailed)(reply.message, refused);
  }
  if (reply.stored.size === 0) return;
  const wanted = new Map(commit.entries.map((entry) => [nameOf(entry), entry.offset]));
  const isAsWanted = [...reply.stored].every(([name, offset]) => wanted.get(name) === offset);
  if (isRepeated && isAsWanted) return; // An earlier attempt was carried out.
  throw new OffsetMismatch(reply.message, reply.stored);
}
