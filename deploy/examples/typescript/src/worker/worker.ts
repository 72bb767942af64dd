// `Worker`: a member whose partitions are worked on by handlers.
//
//     const worker = new Worker("127.0.0.1:7400", "billing", { topics: { invoices: 12 } });
//     worker.handler(async (p) => {
//       for await (const row of rowsOf(p.number, p.position, p.revoking)) {
//         await work(row, p.signal);
//         await p.commit(row.offset + 1n); // Ends the handler here once p is being revoked.
//       }
//     });
//     await worker.run(); // Until SIGTERM or SIGINT.
//
// Handlers run on the one event loop of the process, and the protocol too: a handler that blocks
// it costs heartbeats.

import { type Clock, sleep, systemClock } from "../clock.js";
import { StaleMember } from "../errors.js";
import { errorText, type Logger, prefixed } from "../log.js";
import type { RebalanceEvent } from "../machine/events.js";
import type { Holding } from "../machine/holdings.js";
import { Machine } from "../machine/machine.js";
import { nameOf, partitionsOf, type TopicPartition } from "../partitions.js";
import {
  checkHandlerSettings,
  type HandlerSettings,
  type Offset,
  type ParsedSettings,
  parseSettings,
  toOffset,
  type WorkerSettings,
} from "../settings.js";
import { Connection } from "../transport/connection.js";
import type { Transport } from "../transport/transport.js";
import { Member, type MemberPhase } from "./member.js";
import type { Partition } from "./partition.js";
import { type Handler, Run, type RunStatus } from "./run.js";
import { onSignals } from "./signals.js";

/** Handlers that end together give their partitions back together. */
const GATHER_MS = 20;

export interface PartitionState {
  readonly topic: string;
  readonly number: number;
  readonly status: RunStatus;
  /** Epoch milliseconds. */
  readonly since: number;
  /** Failures of its handler in a row. */
  readonly attempts: number;
  readonly lastError: unknown;
  readonly revoking: boolean;
}

export interface WorkerState {
  readonly phase: MemberPhase;
  /** Epoch milliseconds. */
  readonly since: number;
  readonly connected: boolean;
  readonly lastError: unknown;
  readonly memberId: string;
  readonly generation: number;
  readonly isLeader: boolean;
  /** Also those that are gone and whose handlers have not ended. */
  readonly partitions: readonly PartitionState[];
}

/** What tests replace. */
export interface Replacements {
  readonly transport?: Transport;
  readonly clock?: Clock;
  readonly random?: () => number;
}

export class Worker {
  private readonly settings: ParsedSettings;
  private readonly clock: Clock;
  private readonly transport: Transport;
  private readonly random: () => number;
  private readonly logger: Logger;
  private readonly handlers = new Map<string, { handler: Handler; settings: HandlerSettings }>();
  private machine: Machine | undefined;
  private member: Member | undefined;
  /** Runs of holdings, also of those that are over and whose handlers have not ended. */
  private readonly runs = new Map<Run, Promise<void>>();
  private readonly newest = new Map<string, Run>();
  /** By partition's name, until all handlers of it have ended. */
  private readonly busy = new Map<string, Promise<void>>();
  private readonly restsUntilMs = new Map<string, number>();
  private readonly ended = new Set<Run>();
  private readonly stopping = new AbortController();
  private readonly errors: unknown[] = [];
  private serving: Promise<void> | undefined;
  private tokens = 0;

  /**
   * @param bootstrap one or several HOST:PORT to ask for the coordinator.
   * @throws TypeError: a setting is not what it should be; the message shows what it should be.
   */
  constructor(
    bootstrap: string | readonly string[],
    readonly groupId: string,
    settings: WorkerSettings,
    replacements: Replacements = {},
  ) {
    this.settings = parseSettings(bootstrap, groupId, settings);
    this.clock = replacements.clock ?? systemClock;
    this.transport = replacements.transport ?? new Connection(this.settings.credentials);
    this.random = replacements.random ?? Math.random;
    this.logger = prefixed(this.settings.logger, () => {
      const { memberId } = this.machine?.membership ?? {};
      return `group ${groupId}, member ${memberId || this.settings.clientId}`;
    });
  }

  // --- Before it starts ---

  /**
   * Have partitions worked on by a function, called with one partition at a time for each that
   * this worker holds. When it returns, it is called again after a while; returns the function.
   *
   * @throws TypeError: it is no such function.
   */
  handler<H extends Handler>(handler: H, settings: HandlerSettings = {}): H {
    if (this.serving) throw new Error("the worker has started: name its handlers before");
    checkHandler(handler);
    checkHandlerSettings(settings);
    const topic = settings.topic ?? "";
    if (this.handlers.has(topic)) {
      throw new TypeError(
        `${topic ? `topic ${topic}` : "the worker"} has a handler: another one is for a topic of ` +
          `its own, worker.handler(handle, { topic: "refunds" })`,
      );
    }
    this.handlers.set(topic, { handler, settings });
    return handler;
  }

  // --- Life ---

  /**
   * Work until SIGTERM, SIGINT or `stop`, then drain and leave; a second signal ends the process
   * at once. Rejects as `serve`.
   */
  async run({ handleSignals = true } = {}): Promise<void> {
    if (!handleSignals) return this.serve();
    const restore = onSignals((signal) => void this.stop(`stopped by ${signal}`));
    try {
      await this.serve();
    } finally {
      restore();
    }
  }

  /**
   * Work until `stop`. Rejects with FatalError if the group refuses this member, or with the error
   * of a handler whose policy is `stop`; with an AggregateError if there are several.
   */
  async serve(): Promise<void> {
    if (this.serving) throw new Error("a worker runs once: make a new one");
    this.serving = this.live();
    await this.serving;
  }

  /** Drain and leave; resolves when that is done. May be called any number of times. */
  async stop(reason = "stopped"): Promise<void> {
    if (!this.stopping.signal.aborted) this.stopping.abort(reason);
    await this.serving?.catch(() => {}); // Whoever awaits `serve` is told.
  }

  /** What the member and each handler is doing. */
  get state(): WorkerState {
    const { memberId = "", generation = -1, isLeader = false } = this.machine?.membership ?? {};
    const runs = [...this.runs.keys()];
    return {
      ...(this.member?.state ?? { phase: "connecting", since: this.clock.now() }),
      connected: this.machine?.isConnected ?? false,
      lastError: this.errors.at(-1),
      memberId,
      generation,
      isLeader,
      partitions: runs.map((run) => ({
        topic: run.holding.topic,
        number: run.holding.partition,
        status: run.status,
        since: run.sinceMs,
        attempts: run.attempts,
        lastError: run.lastError,
        revoking: run.revoking.signal.aborted,
      })),
    };
  }

  /**
   * Store several partitions' progress at once; unlike `Partition.commit` it ends no handler.
   *
   * @param offsets partition and next offset to read: a Map, or pairs.
   * @param options `atomic`: all or none. `manifest`: stored with the group, 64 KiB at most.
   * @throws as `Partition.commit`, without PartitionRevoked.
   */
  async commit(
    offsets: Iterable<readonly [Partition, Offset]>,
    options: { readonly atomic?: boolean; readonly manifest?: Uint8Array } = {},
  ): Promise<void> {
    const runs: Run[] = [];
    const entries = [...offsets].map(([partition, offset]) => {
      const run = [...this.runs.keys()].find(({ token }) => token === partition.token);
      if (run === undefined) {
        throw new StaleMember(`nothing was sent, for the handler of ${partition} has ended`);
      }
      runs.push(run);
      return run.entry(offset);
    });
    if (this.member === undefined) throw new StaleMember("nothing was sent: it has not started");
    const holdings = runs.map(({ holding }) => holding);
    const storing = this.member.commit({ entries, ...options }, holdings);
    for (const run of runs) run.follow(storing, entries);
    await storing;
  }

  // --- Inside ---

  private async live(): Promise<void> {
    const topics = await this.askTopics();
    if (this.stopping.signal.aborted) return;
    const config = { ...this.settings.config, topics };
    this.machine = new Machine(config, this.settings.bootstrap, this.random);
    this.member = new Member(this.machine, this.transport, this.clock, this.logger, (events) => {
      for (const event of events) this.hear(event);
    });
    const sessionS = config.sessionTimeoutMs / 1_000;
    this.logger.info(
      `joining through ${this.settings.bootstrap.join(", ")}; were it killed, its partitions would ` +
        `rest for the session of ${sessionS} s`,
    );
    this.member.start();
    if (!this.settings.areTopicsFixed) void this.watchTopics(topics);
    await new Promise((resolve) => {
      if (this.stopping.signal.aborted) resolve(undefined);
      this.stopping.signal.addEventListener("abort", resolve);
    });
    await this.drain();
    if (this.errors.length === 1) throw this.errors[0];
    if (this.errors.length > 1) throw new AggregateError(this.errors, "several handlers failed");
  }

  /** Have handlers finish, give back what is done, and leave. */
  private async drain(): Promise<void> {
    const member = this.member!;
    const reason = String(this.stopping.signal.reason);
    const { graceMs } = this.settings;
    const running = [...this.newest.values()];
    this.logger.info(`${reason}: ${running.length} handlers have ${graceMs} ms to finish`);
    member.drain();
    const deadlineMs = this.clock.now() + graceMs;
    for (const run of running) run.revoke(deadlineMs);
    const finished = new AbortController();
    const all = Promise.all(running.map((run) => this.runs.get(run)));
    void all.then(() => finished.abort());
    await sleep(this.clock, graceMs, finished.signal);
    for (const run of this.newest.values()) run.end(`${graceMs} ms of grace have passed`);
    const done = [...this.ended].map(({ holding }) => holding);
    await member.close(reason, partitionsOf(done.filter((holding) => member.holds(holding))));
    this.logger.info(
      this.settings.config.instanceId === undefined
        ? `left the group: ${reason}`
        : `stopped: ${reason}; its place is kept until the session ends`,
    );
  }

  private hear(event: RebalanceEvent): void {
    switch (event.kind) {
      case "assigned":
        for (const partition of event.partitions.values()) this.begin(partition);
        break;
      case "revoking":
        for (const name of event.partitions.keys()) {
          this.newest.get(name)?.revoke(event.deadlineMs);
        }
        break;
      case "lost":
        for (const name of event.partitions.keys()) this.newest.get(name)?.end(event.reason);
        break;
      case "stopping":
        if (this.machine?.membership.failure) this.fail(this.machine.membership.failure);
        break;
    }
  }

  private begin(partition: TopicPartition): void {
    const member = this.member!;
    const holding = member.holding(partition);
    const { handler, settings } = this.handlerOf(partition.topic)!;
    const { clock, logger } = this;
    const { idleMs, progressTimeoutMs } = this.settings;
    const rules = {
      onError: settings.onError ?? this.settings.onError,
      maxAttempts: settings.maxAttempts ?? this.settings.maxAttempts,
      afterAttempts: settings.afterAttempts ?? this.settings.afterAttempts,
      drain: settings.drain,
    };
    const run = new Run(holding, ++this.tokens, handler, rules, {
      clock,
      logger,
      idleMs,
      progressTimeoutMs,
      holds: (of) => member.holds(of),
      store: (entries, of) => member.commit({ entries }, [of]),
      position: (of) => this.position(of),
      release: (of, restMs) => this.release(of, restMs),
      fail: (error) => this.fail(error),
    });
    const before = this.busy.get(holding.name);
    const restMs = (this.restsUntilMs.get(holding.name) ?? 0) - clock.now();
    this.restsUntilMs.delete(holding.name);
    this.newest.set(holding.name, run);
    if (this.stopping.signal.aborted) run.revoke(clock.now());
    const living = run.live(before, restMs).catch((error: unknown) => {
      this.fail(error); // A bug of this library.
    });
    this.runs.set(run, living);
    void living.then(() => this.giveBackSoon(run));
    // A run that only waited may end before the handler that it waited for.
    const busy = Promise.all([before, living]).then(() => {
      if (this.busy.get(holding.name) === busy) this.busy.delete(holding.name);
    });
    this.busy.set(holding.name, busy);
  }

  private giveBackSoon(run: Run): void {
    this.runs.delete(run);
    if (this.newest.get(run.holding.name) === run) this.newest.delete(run.holding.name);
    if (this.ended.size === 0) this.clock.timer(GATHER_MS, () => this.giveBackEnded());
    this.ended.add(run);
  }

  private giveBackEnded(): void {
    const member = this.member!;
    const holdings = [...this.ended].map(({ holding }) => holding);
    this.ended.clear();
    const lasting = holdings.filter((holding) => member.holds(holding));
    if (lasting.length > 0) member.giveBack(partitionsOf(lasting), "it was given back");
  }

  private release(run: Run, restMs: number): void {
    const reason = `released after: ${errorText(run.lastError)}`;
    this.restsUntilMs.set(run.holding.name, this.clock.now() + restMs);
    run.end(reason);
    if (this.member!.holds(run.holding)) {
      this.member!.giveBack(partitionsOf([run.holding]), reason);
    }
  }

  private fail(error: unknown): void {
    this.errors.push(error);
    void this.stop(`failed: ${errorText(error)}`);
  }

  /** The committed offset; where there is none, what the setting `start` says. */
  private async position(holding: Holding): Promise<bigint> {
    const committed = await this.member!.committed(partitionsOf([holding]));
    const offset = committed.get(nameOf(holding)) ?? -1n;
    if (offset >= 0n) return offset;
    const { start, beginOffset, logEnd } = this.settings;
    const { topic, partition } = holding;
    const choose =
      typeof start === "function" ? start : start === "latest" ? logEnd! : beginOffset;
    return toOffset(await choose({ topic, partition }), `the start of ${holding.name}`);
  }

  private handlerOf(topic: string) {
    return this.handlers.get(topic) ?? this.handlers.get("");
  }

  /** @throws TypeError: a topic has no handler. */
  private async askTopics(): Promise<ReadonlyMap<string, number>> {
    const topics = await this.settings.askTopics();
    const missing = [...topics.keys()].filter((topic) => !this.handlerOf(topic));
    if (missing.length === 0) return topics;
    throw new TypeError(
      `topic ${missing.join(", ")} has no handler: worker.handler(async (p) => { … }), or for ` +
        `it alone worker.handler(async (p) => { … }, { topic: "${missing[0]}" })`,
    );
  }

  private async watchTopics(topics: ReadonlyMap<string, number>): Promise<void> {
    const { topicsRefreshMs } = this.settings;
    const { signal } = this.stopping;
    let known = topics;
    while (!signal.aborted) {
      await sleep(this.clock, topicsRefreshMs, signal);
      if (signal.aborted) return;
      try {
        const found = await this.askTopics();
        const isSame =
          found.size === known.size && [...found].every(([topic, n]) => known.get(topic) === n);
        if (isSame) continue;
        known = found;
        this.member!.setTopics(found);
      } catch (error) {
        this.logger.warn(`topics cannot be had: ${errorText(error)}`);
      }
    }
  }
}

function checkHandler(handler: unknown): void {
  const right = "worker.handler(async (p) => { … })";
  if (typeof handler !== "function") {
    throw new TypeError(`a handler is a function: ${right}, not ${String(handler)}`);
  }
  if (/Generator/.test(handler.constructor.name)) {
    throw new TypeError(`a handler is no generator: ${right}`);
  }
  if (handler.length > 1) {
    throw new TypeError(`a handler has one parameter, the partition, not ${handler.length}: ${right}`);
  }
}
