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
import { errorText, type Logger, prefixed, stderrLogger } from "../log.js";
import type { MemberPhase } from "../member/driver.js";
import {
  type CommitAllOptions,
  Member,
  type MemberStanding,
  type Replacements,
} from "../member/member.js";
import {
  type HandlerSettings,
  type Offset,
  type ParsedSettings,
  parseSettings,
  SESSION_TIMEOUT_MS,
  type WorkerSettings,
} from "../settings.js";
import { type Handler, Handlers } from "./handlers.js";
import type { Partition } from "./partition.js";
import type { Stage } from "./run.js";
import { Runs } from "./runs.js";
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

export interface WorkerState extends Omit<MemberStanding, "phase"> {
  /** `new` before it starts, then the phase of its member; `draining` once it is to stop. */
  readonly phase: "new" | MemberPhase | "draining";
  readonly lastError: unknown;
  /** Also those that are gone and whose handlers have not ended. */
  readonly partitions: readonly PartitionState[];
}

const NEW = {
  phase: "new",
  connected: false,
  memberId: "",
  generation: -1,
  isLeader: false,
} as const;

export class Worker {
  private readonly settings: ParsedSettings;
  private readonly clock: Clock;
  private readonly logger: Logger;
  private readonly handlers: Handlers;
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
    private readonly bootstrap: string | readonly string[],
    readonly groupId: string,
    settings: WorkerSettings,
    private readonly replacements: Replacements = {},
  ) {
    this.settings = parseSettings(bootstrap, groupId, settings);
    this.handlers = new Handlers(this.settings);
    this.clock = replacements.clock ?? systemClock;
    this.createdMs = this.clock.now();
    const { logger = stderrLogger(), clientId } = this.settings.member;
    this.logger = prefixed(logger, () => {
      const who = this.member?.state.memberId || clientId;
      return who === undefined ? `group ${groupId}` : `member ${who} of group ${groupId}`;
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
    const known = this.member?.state ?? { ...NEW, since: this.createdMs };
    const isDraining = this.stopping.signal.aborted && known.phase !== "stopped";
    return {
      ...known,
      phase: isDraining ? "draining" : known.phase,
      lastError: this.errors.at(-1),
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
    const { handlers, settings, clock, logger, replacements } = this;
    const { sessionTimeoutMs = SESSION_TIMEOUT_MS } = settings.member;
    this.logger.info(
      `joining through ${[this.bootstrap].flat().join(", ")}; were it killed, its partitions ` +
        `would rest for the session of ${sessionTimeoutMs / 1_000} s`,
    );
    const wanted = { ...settings.member, topics };
    const member = new Member(this.bootstrap, this.groupId, wanted, replacements);
    this.member = member;
    const fail = (error: unknown): void => this.fail(error);
    this.runs = new Runs(member, handlers, settings, clock, logger, fail);
    void this.hear(member);
    if (!settings.areTopicsFixed) void this.watchTopics(topics);
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
    member.drain(graceMs, reason);
    const finished = new AbortController();
    void this.runs!.finish(this.clock.now() + graceMs).then(() => finished.abort());
    await sleep(this.clock, graceMs, finished.signal);
    member.giveBack(this.runs!.endAll(`${graceMs} ms of grace have passed`));
    await member.close(reason);
    this.logger.info(
      this.settings.member.instanceId === undefined
        ? `left the group: ${reason}`
        : `stopped: ${reason}; its place is kept until the session ends`,
    );
  }

  private async hear(member: Member): Promise<void> {
    for await (const event of member.events()) {
      if (event.kind === "stopping" && event.error !== undefined) this.fail(event.error);
      this.runs!.hear(event);
    }
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
