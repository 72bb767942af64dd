// Holdings: the partitions of a member as its owner knows them, and whether they still last.
//
// A holding begins when a partition is handed out, and ends when it is given back or lost. The
// same partition handed out again is another holding. The machine may be ahead of the owner: a
// partition can be taken away and come back before a slow handler commits. So a commit is checked
// against the holdings that the owner knows, never against those the machine has learned of since.

import { StaleMember } from "../errors.js";
import { nameOf, type Partitions, type TopicPartition } from "../partitions.js";

/** Held from the first assignment until all is lost, for commits without partitions. */
export const MEMBERSHIP: TopicPartition = { topic: "", partition: -1 };
const MEMBERSHIP_NAME = nameOf(MEMBERSHIP);

/** One partition, from when it was handed out until it ends. Compared by identity. */
export class Holding implements TopicPartition {
  readonly name: string;

  constructor(
    readonly topic: string,
    readonly partition: number,
    /** The generation in which it began. */
    readonly generation: number,
  ) {
    this.name = nameOf(this);
  }
}

export class Holdings {
  private readonly lasting = new Map<string, Holding>();
  private readonly ended = new Map<string, string>();
  private handedOut: ReadonlyMap<string, Holding> = new Map();

  // --- The machine's side ---

  begin(partitions: Iterable<TopicPartition>, generation: number): void {
    for (const { topic, partition } of partitions) {
      const holding = new Holding(topic, partition, generation);
      this.lasting.set(holding.name, holding);
    }
  }

  end(names: Iterable<string>, reason: string): void {
    for (const name of names) if (this.lasting.delete(name)) this.ended.set(name, reason);
  }

  endAll(reason: string): void {
    this.end([...this.lasting.keys()], reason);
  }

  /** From now on the owner knows all that last. */
  handOut(): void {
    this.handedOut = new Map(this.lasting);
  }

  /** False before the first assignment, and after everything was lost. */
  get areOfAMember(): boolean {
    return this.lasting.has(MEMBERSHIP_NAME);
  }

  /** Those that the owner knows it holds, and whose holdings last. */
  known(partitions: Partitions): Partitions {
    const lasts = (name: string): boolean => {
      const holding = this.handedOut.get(name);
      return holding !== undefined && this.lasts(holding);
    };
    return new Map([...partitions].filter(([name]) => lasts(name)));
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

  /** Throws StaleMember if one has ended; says why. */
  check(claimed: readonly Holding[]): void {
    const ended = claimed.filter((holding) => !this.lasts(holding));
    if (ended.length === 0) return;
    throw new StaleMember(refusal(new Map(ended.map(({ name }) => [name, this.reason(name)]))));
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
