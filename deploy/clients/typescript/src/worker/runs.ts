// All holdings of a worker and their runs: begun when assigned, told of revocations, joined, and
// then given back. Never two handlers of one partition at a time.

import type { Clock } from "../clock.js";
import { StaleMember } from "../errors.js";
import { errorText, type Logger } from "../log.js";
import type { MemberEvent } from "../member/events.js";
import type { Holding } from "../member/ledger.js";
import type { CommitAllOptions, Member, Progress } from "../member/member.js";
import { type Offset, type ParsedSettings, toOffset } from "../settings.js";
import type { Handlers } from "./handlers.js";
import type { Partition } from "./partition.js";
import { type Failures, NO_FAILURES, Run, type Surroundings } from "./run.js";

/** A released partition is wished away for so many pauses, and at least and at most so long. */
const WISH_PAUSES = 10;
const WISH_LEAST_MS = 10_000;
const WISH_MOST_MS = 600_000;
/** Handlers that end together give their partitions back together. */
const GATHER_MS = 20;

export class Runs implements Surroundings {
  readonly idleMs: number;
  readonly progressTimeoutMs: number;
  /** Also those whose holding is over and whose handlers have not ended. */
  readonly all = new Map<Run, Promise<void>>();
  private readonly newest = new Map<string, Run>();
  /** By partition's name, until all handlers of it have ended. */
  private readonly busy = new Map<string, Promise<void>>();
  private readonly rests = new Map<string, { untilMs: number; failures: Failures }>();
  private readonly ended = new Set<Run>();
  /** Partitions that were released, and until when somebody else had better take them. */
  private readonly wishes = new Map<string, { holding: Holding; untilMs: number }>();
  private isStopping = false;

  constructor(
    private readonly member: Member,
    private readonly handlers: Handlers,
    private readonly settings: ParsedSettings,
    readonly clock: Clock,
    readonly logger: Logger,
    readonly fail: (error: unknown) => void,
  ) {
    member.avoid(() => this.unwanted());
    this.idleMs = settings.idleMs;
    this.progressTimeoutMs = settings.progressTimeoutMs;
  }

  hear(event: MemberEvent): void {
    if (event.kind === "granted") this.granted(event.holdings);
    else if (event.kind === "revoking") {
      for (const { name } of event.holdings) this.newest.get(name)?.revoke(event.deadlineMs);
    } else if (event.kind === "lost") {
      for (const { name } of event.holdings) this.newest.get(name)?.end(event.reason);
    }
  }

  /** Have all handlers finish until then; resolves when they have. */
  async finish(deadlineMs: number): Promise<void> {
    this.isStopping = true;
    const running = [...this.newest.values()];
    for (const run of running) run.revoke(deadlineMs);
    await Promise.all(running.map((run) => this.all.get(run)));
  }

  /** End all holdings; returns those of handlers that have ended in time. */
  endAll(reason: string): Holding[] {
    for (const run of this.newest.values()) run.end(reason);
    return [...this.ended].map(({ holding }) => holding);
  }

  /** Store several at once. Throws StaleMember: the handler of one has ended. */
  async commitAll(
    offsets: Iterable<readonly [Partition, Offset]>,
    options: CommitAllOptions,
  ): Promise<void> {
    const byToken = new Map([...this.all.keys()].map((run) => [run.holding.token, run]));
    const runs: Run[] = [];
    const progress = [...offsets].map(([partition, offset]) => {
      const run = byToken.get(partition.token);
      if (run === undefined) {
        throw new StaleMember(`nothing was sent, for the handler of ${partition} has ended`);
      }
      runs.push(run);
      return run.progress(offset);
    });
    const storing = this.member.commit(progress, options);
    runs.forEach((run, index) => run.follow(storing, progress[index]!));
    await storing;
  }

  // --- What a run needs ---

  holds(holding: Holding): boolean {
    return this.member.holds(holding);
  }

  async store(progress: Progress): Promise<void> {
    await this.member.commit([progress]);
    this.wishes.delete(progress.holding.name);
  }

  /** It was released, and came back all the same: nobody else takes it. */
  hasComeBack({ name }: Holding): boolean {
    return (this.wishes.get(name)?.untilMs ?? 0) > this.clock.now();
  }

  async position(
    holding: Holding,
    fetched?: Promise<ReadonlyMap<string, bigint>>,
  ): Promise<bigint> {
    const committed = await (fetched ?? this.member.committed([holding]));
    const offset = committed.get(holding.name) ?? -1n;
    if (offset >= 0n) return offset;
    const { start, beginOffset, logEnd } = this.settings;
    const { topic, partition } = holding;
    const choose = typeof start === "function" ? start : start === "latest" ? logEnd! : beginOffset;
    return toOffset(await choose({ topic, partition }), `the start of ${holding.name}`);
  }

  release(run: Run, restMs: number): void {
    const reason = `released after: ${errorText(run.failures.lastError)}`;
    const { holding, failures } = run;
    const nowMs = this.clock.now();
    const wishMs = Math.min(WISH_MOST_MS, Math.max(WISH_LEAST_MS, WISH_PAUSES * restMs));
    this.rests.set(holding.name, { untilMs: nowMs + restMs, failures });
    this.wishes.set(holding.name, { holding, untilMs: nowMs + wishMs });
    run.end(reason);
    this.member.refuse([holding], reason);
  }

  // --- Inside ---

  /** Released ones, and those of which an earlier handler has not ended. */
  private unwanted(): Holding[] {
    const nowMs = this.clock.now();
    for (const [name, { untilMs }] of this.wishes) if (untilMs <= nowMs) this.wishes.delete(name);
    const released = [...this.wishes.values()].map(({ holding }) => holding);
    // Asked before they hear that their time is over.
    const overdue = [...this.all.keys()].filter(
      ({ stage, holding }) => (stage === "running" || stage === "overdue") && !this.holds(holding),
    );
    const holdings = [...released, ...overdue.map(({ holding }) => holding)];
    return [...new Map(holdings.map((holding) => [holding.name, holding])).values()];
  }

  private granted(holdings: readonly Holding[]): void {
    // One call for all that begin now; what waits asks when it begins.
    const fetched = this.member.committed(holdings);
    fetched.catch(() => {}); // Each run is told.
    for (const holding of holdings) this.begin(holding, fetched);
  }

  private begin(holding: Holding, fetched: Promise<ReadonlyMap<string, bigint>>): void {
    const { name, topic } = holding;
    const before = this.busy.get(name);
    const rest = this.rests.get(name);
    this.rests.delete(name);
    const run = new Run(holding, this.handlers.of(topic), this);
    run.failures = rest?.failures ?? NO_FAILURES;
    this.newest.set(name, run);
    if (this.isStopping) run.revoke(this.clock.now());
    const restMs = (rest?.untilMs ?? 0) - this.clock.now();
    const isFree = before === undefined && restMs <= 0;
    const living = run
      .live(before, restMs, isFree ? fetched : undefined)
      .catch((error: unknown) => this.fail(error)); // A bug of this library.
    this.all.set(run, living);
    void living.then(() => this.giveBackSoon(run));
    // A run that only waited may end before the handler that it waited for.
    const busy = Promise.all([before, living]).then(() => {
      if (this.busy.get(name) === busy) this.busy.delete(name);
    });
    this.busy.set(name, busy);
  }

  private giveBackSoon(run: Run): void {
    this.all.delete(run);
    if (this.newest.get(run.holding.name) === run) this.newest.delete(run.holding.name);
    if (this.ended.size === 0) this.clock.timer(GATHER_MS, () => this.giveBackEnded());
    this.ended.add(run);
  }

  private giveBackEnded(): void {
    const holdings = [...this.ended].map(({ holding }) => holding);
    this.ended.clear();
    this.member.giveBack(holdings);
  }
}
