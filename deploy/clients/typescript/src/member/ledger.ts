// The ledger of a member's holdings: begun, known to the owner, ended and why. This file decides
// whether a commit may be sent.
//
// A holding begins when a partition is granted, and ends when it is given back or lost. The same
// partition granted again is another holding. The machine may be ahead of the owner: a partition
// can be taken away and come back before a slow handler commits. So a commit is checked against
// the holding that its owner shows, or was handed out last, never against one that the machine
// has learned of since.
//
//   machine:  begin ──────────► end        begin again
//   owner:           handOut         commit (refused)   handOut   commit (accepted)

import { StaleMember } from "../errors.js";
import { nameOf, type TopicPartition } from "../partitions.js";

/** Held from the first assignment until all is lost, for commits without partitions. */
export const MEMBERSHIP: TopicPartition = { topic: "", partition: -1 };
const MEMBERSHIP_NAME = nameOf(MEMBERSHIP);

/** One grant of one partition, until it ends. Compared by identity. */
export class Holding implements TopicPartition {
  readonly name: string;

  constructor(
    readonly topic: string,
    /** Counts from 0. */
    readonly partition: number,
    /**
     * Greater with each grant of the partition: in the whole group in a session group, else in
     * this process. 0: the partition is not granted, only to be prepared for.
     */
    readonly token: number,
    /** The generation in which it began; -1: it is of a session group. */
    readonly generation: number,
    /** The offset committed when it was granted, -1n: none; undefined: not told. */
    readonly offset?: bigint,
    /** Mode copy: where the holder before has stopped; undefined: not told. */
    readonly position?: bigint,
  ) {
    this.name = nameOf(this);
  }
}

export class Ledger {
  private readonly lasting = new Map<string, Holding>();
  private readonly ended = new Map<string, string>();
  private readonly handedOut = new Map<string, Holding>();
  private granted = 0;

  // --- The machine's side ---

  /** Begin holdings of a generation; their tokens are counted here. */
  begin(partitions: Iterable<TopicPartition>, generation: number): Holding[] {
    return [...partitions].map(({ topic, partition }) =>
      this.beginOne(new Holding(topic, partition, ++this.granted, generation)),
    );
  }

  beginOne(holding: Holding): Holding {
    this.lasting.set(holding.name, holding);
    return holding;
  }

  /** Begin to be a member, if this is none. */
  beginMembership(generation: number): void {
    if (!this.lasting.has(MEMBERSHIP_NAME)) this.begin([MEMBERSHIP], generation);
  }

  end(names: Iterable<string>, reason: string): void {
    for (const name of names) if (this.lasting.delete(name)) this.ended.set(name, reason);
  }

  endAll(reason: string): void {
    this.end([...this.lasting.keys()], reason);
  }

  /** From now on the owner knows these. */
  handOut(holdings: Iterable<Holding>): void {
    for (const holding of holdings) this.handedOut.set(holding.name, holding);
    const membership = this.lasting.get(MEMBERSHIP_NAME);
    if (membership !== undefined) this.handedOut.set(MEMBERSHIP_NAME, membership);
  }

  /** Holdings of these partitions that last, and that the owner knows; by name. */
  known(partitions: ReadonlyMap<string, unknown>): ReadonlyMap<string, Holding> {
    const found = [...this.handedOut].filter(
      ([name, holding]) => partitions.has(name) && this.lasts(holding),
    );
    return new Map(found);
  }

  // --- The owner's side ---

  /** The holding that was handed out last, whether or not it lasts. Throws StaleMember. */
  of(partition: TopicPartition): Holding {
    return this.claim([partition], undefined)[0]!;
  }

  /**
   * The holdings that a commit of these partitions counts for.
   *
   * @param partitions if there are none, the commit counts for the membership.
   * @param shown by the caller; undefined: those handed out last.
   * @throws StaleMember: a partition has none.
   */
  claim(
    partitions: readonly TopicPartition[],
    shown: readonly Holding[] | undefined,
  ): readonly Holding[] {
    const held = shown && new Map(shown.map((holding) => [holding.name, holding]));
    const claimed: Holding[] = [];
    const refused = new Map<string, string>();
    for (const partition of partitions.length > 0 ? partitions : [MEMBERSHIP]) {
      const name = nameOf(partition);
      const source = partitions.length > 0 ? (held ?? this.handedOut) : this.handedOut;
      const holding = source.get(name);
      if (holding !== undefined) claimed.push(holding);
      else refused.set(name, held === undefined ? this.reason(name) : "no holding of it was shown");
    }
    if (refused.size > 0) throw new StaleMember(refusal(refused));
    return claimed;
  }

  /** True until the partition is given back or lost. */
  lasts(holding: Holding): boolean {
    return this.lasting.get(holding.name) === holding;
  }

  /**
   * Asked before each attempt of a commit.
   *
   * @param unproven why the protocol has no proof of a holding at the moment; undefined: it has.
   * @throws StaleMember: a holding has ended, or there is no proof of it; says why.
   */
  check(claimed: readonly Holding[], unproven: (holding: Holding) => string | undefined): void {
    const refused = new Map<string, string>();
    for (const holding of claimed) {
      const { name } = holding;
      const why = this.lasts(holding) ? unproven(holding) : this.reason(name);
      if (why !== undefined) refused.set(name, why);
    }
    if (refused.size > 0) throw new StaleMember(refusal(refused));
  }

  private reason(name: string): string {
    const toldSoon = this.lasting.has(name);
    return (
      this.ended.get(name) ??
      (toldSoon ? "it has not been handed out yet" : "it is not assigned to this member")
    );
  }
}

function refusal(reasons: ReadonlyMap<string, string>): string {
  const ofMember = reasons.get(MEMBERSHIP_NAME);
  if (ofMember !== undefined) {
    return `nothing was sent, for this is no member of the group: ${ofMember}`;
  }
  const named = [...reasons].sort().map(([name, why]) => `${name}: ${why}`);
  return `nothing was sent, for this member does not hold what is to be committed: ${named.join("; ")}`;
}
