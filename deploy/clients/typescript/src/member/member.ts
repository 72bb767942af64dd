// `Member`: a member of a group, by either protocol. What `Worker` stands on, for programs that
// handle events by themselves.
//
//     const member = new Member("127.0.0.1:7400", "billing", {
//       topics: { invoices: 12 },
//       protocol: "session",
//     });
//     for await (const event of member.events()) {
//       if (event.kind === "granted") begin(event.holdings);
//       if (event.kind === "revoking") member.giveBack(await finish(event.holdings));
//       if (event.kind === "lost") member.giveBack(abandon(event.holdings));
//     }
//
// All commits name the holdings that they are for.

import { type Clock, systemClock } from "../clock.js";
import { type Logger, prefixed } from "../log.js";
import { type Partitions, partitionsOf, type TopicPartition } from "../partitions.js";
import { type MemberSettings, type Offset, parseMemberSettings, toOffset } from "../settings.js";
import { Connection } from "../transport/connection.js";
import type { Transport } from "../transport/transport.js";
import { Driver, type MemberPhase } from "./driver.js";
import { eventText, type MemberEvent } from "./events.js";
import type { Holding } from "./ledger.js";
import { Machine } from "./machine.js";

/** Progress of one holding. */
export interface Progress {
  readonly holding: Holding;
  /** The next offset to read. */
  readonly offset: Offset;
  /** Stored with the offset. */
  readonly metadata?: string | undefined;
  /** The offset that must be stored now; -1: none. OffsetMismatch if it is another. */
  readonly expected?: Offset | undefined;
}

export interface CommitAllOptions {
  /** All partitions or none. */
  readonly atomic?: boolean;
  /** Stored with the group, 64 KiB at most. */
  readonly manifest?: Uint8Array;
}

export interface MemberStanding {
  readonly phase: MemberPhase;
  /** Epoch milliseconds. */
  readonly since: number;
  readonly connected: boolean;
  readonly memberId: string;
  /** -1 in a session group. */
  readonly generation: number;
  readonly isLeader: boolean;
}

/** What tests replace. */
export interface Replacements {
  readonly transport?: Transport;
  readonly clock?: Clock;
  readonly random?: () => number;
}

export class Member {
  private readonly clock: Clock;
  private readonly logger: Logger;
  private readonly machine: Machine;
  private readonly driver: Driver;
  private wake = (): void => {};

  /**
   * Begins to join.
   *
   * @param bootstrap one or several HOST:PORT to ask for the coordinator.
   * @throws TypeError: a setting is not what it should be; the message shows what it should be.
   */
  constructor(
    bootstrap: string | readonly string[],
    readonly groupId: string,
    settings: MemberSettings,
    replacements: Replacements = {},
  ) {
    const parsed = parseMemberSettings(bootstrap, groupId, settings);
    const { clock = systemClock, random = Math.random } = replacements;
    const transport = replacements.transport ?? new Connection(parsed.credentials);
    this.clock = clock;
    this.machine = new Machine(parsed.config, parsed.bootstrap, random);
    this.logger = prefixed(parsed.logger, () => {
      const { memberId } = this.machine.state;
      return `member ${memberId || parsed.config.clientId} of group ${groupId}`;
    });
    this.driver = new Driver(this.machine, transport, clock, this.logger, () => {
      if (this.machine.hasEvents) this.wake();
    });
    this.machine.start(clock.now());
    this.driver.turn();
  }

  get state(): MemberStanding {
    const { phase, sinceMs } = this.driver;
    const { memberId, generation, isLeader } = this.machine.state;
    const connected = this.machine.isConnected;
    return { phase, since: sinceMs, connected, memberId, generation, isLeader };
  }

  /**
   * What happens to it; ends after `stopping`. A holding is the owner's once it was handed out
   * here. Asking for the next event counts as progress.
   */
  async *events(): AsyncGenerator<MemberEvent, void, void> {
    for (;;) {
      const [event] = this.machine.handOut(this.clock.now(), 1);
      this.driver.turn();
      if (event !== undefined) {
        this.log(event);
        yield event;
        if (event.kind === "stopping") return;
      } else if (!this.machine.hasEvents) {
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    }
  }

  // --- Holdings ---

  /** Those handed out and not to be given back. */
  get assignment(): Holding[] {
    return this.machine.assignment;
  }

  /** The holding that was handed out last. Throws StaleMember: there is none. */
  holding(partition: TopicPartition): Holding {
    return this.machine.state.ledger.of(partition);
  }

  /** True until the partition is given back or lost. */
  holds(holding: Holding): boolean {
    return this.machine.state.ledger.lasts(holding);
  }

  /** True while effects may leave the process: one comparison, made now. */
  isValid(holding: Holding): boolean {
    return this.machine.isValid(holding, this.clock.now());
  }

  /** True while new work may be begun. */
  takesWork(holding: Holding): boolean {
    return this.machine.takesWork(holding, this.clock.now());
  }

  /**
   * Store progress; resolves when it is durable.
   *
   * @throws StaleMember: a holding has ended, or is suspended; nothing is sent then. OffsetMismatch,
   *   CommitFailed: it was refused. Unavailable: nobody answered for 30 s.
   */
  async commit(progress: Iterable<Progress>, options: CommitAllOptions = {}): Promise<void> {
    const all = [...progress];
    const entries = all.map(({ holding, offset, metadata, expected }) => ({
      topic: holding.topic,
      partition: holding.partition,
      offset: toOffset(offset, `the offset of ${holding.name}`),
      metadata,
      expected: expected === undefined ? undefined : toOffset(expected, "expected"),
    }));
    const shown = all.map(({ holding }) => holding);
    const begun = this.machine.commit({ entries, ...options }, shown, this.clock.now());
    await this.driver.resultOf(begun);
  }

  /** Committed offsets by partition's name; -1n: none. */
  async committed(partitions: Iterable<TopicPartition>): Promise<ReadonlyMap<string, bigint>> {
    const asked: Partitions = partitionsOf(partitions);
    const operation = this.machine.fetch(asked, this.clock.now());
    await this.driver.resultOf(operation);
    return operation.offsets;
  }

  /**
   * Nothing of these runs any more, and their last commits were answered; asked to or not.
   *
   * @param position session groups, mode copy: up to where the next holder may prepare.
   */
  giveBack(
    holdings: Iterable<Holding>,
    { reason = "it was given back", position }: { reason?: string; position?: Offset } = {},
  ): void {
    const at = position === undefined ? undefined : toOffset(position, "position");
    this.machine.giveBack([...holdings], { reason, position: at }, this.clock.now());
    this.driver.turn();
  }

  /**
   * Give these up. In a session group they are somebody else's for a while; in a classic group that
   * is for `avoid` to say.
   */
  refuse(holdings: Iterable<Holding>, reason: string): void {
    this.machine.giveBack([...holdings], { reason, isRefused: true }, this.clock.now());
    this.driver.turn();
  }

  /**
   * Classic groups: have the leader give partitions to others, if there are others.
   *
   * @param unwanted called before each join; 100 at most are named.
   */
  avoid(unwanted: () => Iterable<TopicPartition>): void {
    this.machine.state.unwanted = unwanted;
  }

  /** These are prepared for. */
  ready(holdings: Iterable<Holding>): void {
    this.machine.ready([...holdings]);
    this.driver.turn();
  }

  // --- Topics, and the end ---

  /** Declare other numbers of partitions: the group assigns by them. */
  setTopics(topics: ReadonlyMap<string, number>): void {
    this.machine.setTopics(topics, this.clock.now());
    this.driver.turn();
  }

  /**
   * Take nothing more. In a session group everything is ordered back within a time, and `stopping`
   * follows.
   */
  drain(withinMs: number, reason = "it drains"): void {
    this.machine.drain(withinMs, reason, this.clock.now());
    this.driver.turn();
  }

  /**
   * Stop, and leave the group; resolves within four seconds. What is held still is lost. A static
   * member of a classic group does not leave: its place is kept until its session ends.
   *
   * @param returnWithinMs session groups: what it holds is kept so long for a process of its name.
   */
  async close(reason = "closed", returnWithinMs?: number): Promise<void> {
    this.machine.close(reason, this.clock.now(), returnWithinMs);
    this.driver.turn();
    await this.driver.closed;
  }

  private log(event: MemberEvent): void {
    const line = eventText(event, this.clock.now());
    const isBad = event.kind === "lost" || this.machine.state.failure !== undefined;
    if (isBad) this.logger.warn(line);
    else if (event.kind === "stopping") this.logger.debug(line);
    else this.logger.info(line);
  }
}
