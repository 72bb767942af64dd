// One holding and its handler: called, called again, told of a revocation, and joined.
//
//   waiting ──► running ──► idle | backing off ──► running …     until revoked or lost
//   (the handler of an earlier holding of this partition has not ended; or it rests)
//
// A handler cannot be cancelled, only told by its signals. When its time is over, its partition is
// given up all the same, and everything that it calls is refused.

import { aborted, type Clock, sleep } from "../clock.js";
import { PartitionRevoked, StaleMember } from "../errors.js";
import { errorText, type Logger } from "../log.js";
import type { Holding } from "../member/ledger.js";
import type { Progress } from "../member/member.js";
import type { Offset } from "../settings.js";
import type { Rules } from "./handlers.js";
import { type CommitOptions, Partition } from "./partition.js";

export type Stage =
  /** The handler of an earlier holding has not ended. */
  | "waiting"
  /** Given up after a failure, and handed back: it rests for the pause of a retry. */
  | "resting"
  | "starting"
  | "running"
  /** The handler has returned, and is called again after a while. */
  | "idle"
  | "backing off"
  | "done"
  /** The handler has not ended, though its partition was given up. */
  | "overdue"
  | "ended";

/** What a run needs of its worker. */
export interface Surroundings {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly idleMs: number;
  readonly progressTimeoutMs: number;
  holds(holding: Holding): boolean;
  /** Store; rejects as `Member.commit`. */
  store(progress: Progress): Promise<void>;
  /** The committed offset; where there is none, what the setting `start` says. */
  position(holding: Holding, fetched?: Promise<ReadonlyMap<string, bigint>>): Promise<bigint>;
  /** True if it was given up a while ago, and nobody else has taken it. */
  hasComeBack(holding: Holding): boolean;
  /** Give the partition up, and let it rest for a pause if it comes back. */
  release(run: Run, restMs: number): void;
  /** The policy says that the worker stops. */
  fail(error: unknown): void;
}

/** Failures in a row: without a commit, or a handler that returned, between them. */
export interface Failures {
  readonly attempts: number;
  readonly lastError: unknown;
}

export const NO_FAILURES: Failures = { attempts: 0, lastError: undefined };

export class Run {
  readonly revoking = new AbortController();
  readonly over = new AbortController();
  deadlineMs: number | undefined;
  stage: Stage = "starting";
  sinceMs: number;
  failures = NO_FAILURES;
  isDone = false;
  private stored: bigint | undefined;
  private readonly committing = new Set<Promise<void>>();

  constructor(
    readonly holding: Holding,
    private readonly rules: Rules,
    private readonly around: Surroundings,
  ) {
    this.sinceMs = around.clock.now();
  }

  get isValid(): boolean {
    return !this.over.signal.aborted && this.around.holds(this.holding);
  }

  /**
   * Until the handler has ended for good.
   *
   * @param before handlers of earlier holdings of this partition: never two at a time.
   * @param restMs a pause, if the partition was given up after a failure.
   * @param fetched committed offsets, if they were asked for already.
   */
  async live(
    before: Promise<void> | undefined,
    restMs: number,
    fetched: Promise<ReadonlyMap<string, bigint>> | undefined,
  ): Promise<void> {
    try {
      if (before !== undefined) await this.waitFor(before);
      if (restMs > 0) await this.pause("resting", restMs);
      if (!this.revoking.signal.aborted) await this.work(fetched);
    } finally {
      this.is("ended");
      this.end("the handler has ended");
    }
  }

  /** Finish and commit until the deadline; undefined: there is none. */
  revoke(deadlineMs: number | undefined): void {
    const sooner = Math.min(deadlineMs ?? Infinity, this.deadlineMs ?? Infinity);
    this.deadlineMs = sooner === Infinity ? undefined : sooner;
    this.revoking.abort(new PartitionRevoked(`${this.holding.name} is being revoked`));
  }

  /** The holding is over: nothing that the handler does counts any more. */
  end(reason: string): void {
    if (this.over.signal.aborted) return;
    const error = new StaleMember(`nothing was sent, for ${this.holding.name} is over: ${reason}`);
    this.revoking.abort(error);
    this.over.abort(error);
    if (this.stage !== "running") return;
    this.is("overdue");
    this.around.logger.warn(
      `the handler of ${this.holding.name} has not ended yet, and its partition is gone: ${reason}`,
    );
  }

  async commit(offset: Offset, options: CommitOptions): Promise<void> {
    const progress = this.progress(offset, options);
    const storing = this.around.store(progress);
    this.follow(storing, progress);
    await storing;
    if (this.revoking.signal.aborted && this.rules.drain !== "manual") {
      throw new PartitionRevoked(`${offset} of ${this.holding.name} is stored; it is revoked`);
    }
  }

  /** Said even if nobody awaits the commit, which must not end the process either. */
  sayRefused(error: unknown): void {
    if (error instanceof PartitionRevoked) return;
    this.around.logger.warn(`commit of ${this.holding.name} refused: ${errorText(error)}`);
  }

  /** @throws StaleMember: the holding is over. */
  progress(offset: Offset, options: CommitOptions = {}): Progress {
    if (this.over.signal.aborted) throw this.over.signal.reason;
    return { holding: this.holding, offset, ...options };
  }

  /** Note a commit under way: the handler's end waits for it, even if nobody awaits it. */
  follow(storing: Promise<void>, { offset }: Progress): void {
    const noted = storing.then(
      () => {
        this.stored = BigInt(offset);
        this.failures = NO_FAILURES;
      },
      () => {}, // Whoever commits is told.
    );
    this.committing.add(noted);
    void noted.then(() => this.committing.delete(noted));
  }

  // --- Inside ---

  private async waitFor(before: Promise<void>): Promise<void> {
    const { clock, progressTimeoutMs, logger } = this.around;
    const { name } = this.holding;
    let hasEnded = false;
    const ended = new AbortController();
    void before.then(() => {
      hasEnded = true;
      ended.abort();
    });
    await Promise.resolve(); // An earlier run that has ended is no news.
    if (!hasEnded) logger.warn(`${name} waits: its handler before has not ended`);
    while (!hasEnded && !this.revoking.signal.aborted) {
      this.is("waiting");
      await sleep(clock, progressTimeoutMs, AbortSignal.any([ended.signal, this.revoking.signal]));
      if (hasEnded || this.revoking.signal.aborted) return;
      await this.failed(new Error(`the handler before has not ended for ${progressTimeoutMs} ms`));
    }
  }

  private async work(fetched?: Promise<ReadonlyMap<string, bigint>>): Promise<void> {
    this.is("starting");
    let position = await this.begin(fetched);
    while (position !== undefined && !this.revoking.signal.aborted) {
      const failure = await this.callHandler(position);
      position = this.stored ?? position;
      if (this.revoking.signal.aborted) this.sayLateFailure(failure);
      else if (failure !== undefined) await this.failed(failure.error);
      else if (this.isDone) await this.restUntilRevoked();
      else {
        this.failures = NO_FAILURES;
        await this.pause("idle", this.around.idleMs);
      }
    }
  }

  /** Where to begin; undefined: revoked before that was known. */
  private async begin(fetched?: Promise<ReadonlyMap<string, bigint>>): Promise<bigint | undefined> {
    let asked = fetched;
    while (!this.revoking.signal.aborted) {
      try {
        return await this.around.position(this.holding, asked);
      } catch (error) {
        asked = undefined;
        await this.failed(error);
      }
    }
    return undefined;
  }

  private async callHandler(position: bigint): Promise<{ error: unknown } | undefined> {
    this.is("running");
    try {
      await this.rules.handler(new Partition(this, position));
      return undefined;
    } catch (error) {
      return { error };
    } finally {
      await Promise.all(this.committing);
    }
  }

  /** What the policy says; returns when the handler may be called again, or the run is over. */
  private async failed(error: unknown): Promise<void> {
    const { logger } = this.around;
    const { name } = this.holding;
    const attempts = this.failures.attempts + 1;
    this.failures = { attempts, lastError: error };
    const { onError, maxAttempts, afterMaxAttempts, retryBackoffMs, retryBackoffMaxMs } =
      this.rules;
    const policy = attempts >= maxAttempts && onError === "retry" ? afterMaxAttempts : onError;
    const pauseMs = Math.min(retryBackoffMaxMs, retryBackoffMs * 2 ** (attempts - 1));
    const said = `handler of ${name} failed (attempt ${attempts}): ${errorText(error)}`;
    // To give it up once more would only be another rebalance of everybody.
    switch (policy === "release" && this.around.hasComeBack(this.holding) ? "retry" : policy) {
      case "retry":
        logger.warn(`${said}; again in ${pauseMs / 1000} s`);
        return this.pause("backing off", pauseMs);
      case "release":
        logger.warn(`${said}; the partition is given up`);
        this.is("ended");
        return this.around.release(this, pauseMs);
      case "stop":
        logger.warn(`${said}; the worker stops`);
        this.around.fail(error);
        return aborted(this.revoking.signal);
    }
  }

  /** An error on the way out; those of the revocation itself are no news. */
  private sayLateFailure(failure: { error: unknown } | undefined): void {
    const { error } = failure ?? {};
    const isExpected =
      error === undefined ||
      error instanceof PartitionRevoked ||
      error instanceof StaleMember ||
      (error instanceof Error && error.name === "AbortError");
    if (isExpected) return;
    this.failures = { ...this.failures, lastError: error };
    this.around.logger.warn(
      `handler of ${this.holding.name} failed while it was revoked: ${errorText(error)}`,
    );
  }

  private async restUntilRevoked(): Promise<void> {
    this.is("done");
    await aborted(this.revoking.signal);
  }

  private async pause(stage: Stage, ms: number): Promise<void> {
    this.is(stage);
    await sleep(this.around.clock, ms, this.revoking.signal);
  }

  private is(stage: Stage): void {
    this.stage = stage;
    this.sinceMs = this.around.clock.now();
  }
}
