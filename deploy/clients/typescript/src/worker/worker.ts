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
import { Machine } from "../machine/machine.js";
import {
  type HandlerSettings,
  type Offset,
  type ParsedSettings,
  parseSettings,
  type WorkerSettings,
} from "../settings.js";
import { Connection } from "../transport/connection.js";
import type { Transport } from "../transport/transport.js";
import { type Handler, Handlers } from "./handlers.js";
import { Member, type MemberPhase } from "./member.js";
import type { Partition } from "./partition.js";
import type { Stage } from "./run.js";
import { type CommitAllOptions, Runs } from "./runs.js";
import { onSignals } from "./signals.js";

export interface PartitionState {
  readonly topic: string;
  readonly number: number;
  readonly stage: Stage;
  /** Epoch milliseconds. */
  readonly since: number;
  /** Failures of its handler in a row. */
  readonly attempts: number;
  readonly lastError: unknown;
  readonly revoking: boolean;
}

export interface WorkerState {
  /** `new` before it starts, then the phase of its member; `draining` once it is to stop. */
  readonly phase: "new" | MemberPhase | "draining";
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
  private readonly handlers: Handlers;
  private machine: Machine | undefined;
  private member: Member | undefined;
  private runs: Runs | undefined;
  private readonly stopping = new AbortController();
  private readonly errors: unknown[] = [];
  private readonly createdMs: number;
  private serving: Promise<void> | undefined;

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
    this.handlers = new Handlers(this.settings);
    this.clock = replacements.clock ?? systemClock;
    this.transport = replacements.transport ?? new Connection(this.settings.credentials);
    this.createdMs = this.clock.now();
    this.random = replacements.random ?? Math.random;
    this.logger = prefixed(this.settings.logger, () => {
      const { memberId } = this.machine?.membership ?? {};
      return `member ${memberId || this.settings.clientId} of group ${groupId}`;
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
    this.handlers.add(handler, settings);
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
    const { phase, since } = this.member?.state ?? { phase: "new", since: this.createdMs };
    const isDraining = this.stopping.signal.aborted && phase !== "stopped";
    return {
      phase: isDraining ? "draining" : phase,
      since,
      connected: this.machine?.isConnected ?? false,
      lastError: this.errors.at(-1),
      memberId,
      generation,
      isLeader,
      partitions: [...(this.runs?.all.keys() ?? [])].map((run) => ({
        topic: run.holding.topic,
        number: run.holding.partition,
        stage: run.stage,
        since: run.sinceMs,
        attempts: run.failures.attempts,
        lastError: run.failures.lastError,
        revoking: run.revoking.signal.aborted,
      })),
    };
  }

  /**
   * Store several partitions' progress at once; unlike `Partition.commit` it ends no handler.
   *
   * @param offsets partition and next offset to read: a Map, or pairs.
   * @throws as `Partition.commit`, without PartitionRevoked.
   */
  async commit(
    offsets: Iterable<readonly [Partition, Offset]>,
    options: CommitAllOptions = {},
  ): Promise<void> {
    if (this.runs === undefined) throw new StaleMember("nothing was sent: it has not started");
    await this.runs.commitAll(offsets, options);
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
    const { member, handlers, settings, clock, logger } = this;
    const fail = (error: unknown): void => this.fail(error);
    this.runs = new Runs(member, handlers, settings, clock, logger, fail);
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
    const count = this.state.partitions.length;
    this.logger.info(`${reason}: handlers have ${graceMs} ms to finish (${count} partitions)`);
    member.drain();
    const finished = new AbortController();
    void this.runs!.finish(this.clock.now() + graceMs).then(() => finished.abort());
    await sleep(this.clock, graceMs, finished.signal);
    await member.close(reason, this.runs!.endAll(`${graceMs} ms of grace have passed`));
    this.logger.info(
      this.settings.config.instanceId === undefined
        ? `left the group: ${reason}`
        : `stopped: ${reason}; its place is kept until the session ends`,
    );
  }

  private hear(event: RebalanceEvent): void {
    const failure = this.machine?.membership.failure;
    if (event.kind === "stopping" && failure !== undefined) this.fail(failure);
    this.runs?.hear(event);
  }

  private fail(error: unknown): void {
    this.errors.push(error);
    void this.stop(`failed: ${errorText(error)}`);
  }

  /** @throws TypeError: a topic has no handler. */
  private async askTopics(): Promise<ReadonlyMap<string, number>> {
    const topics = await this.settings.askTopics();
    this.handlers.checkTopics(topics.keys());
    return topics;
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
