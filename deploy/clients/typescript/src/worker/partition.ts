// What a handler is given: one partition, from a position on.

import type { Offset } from "../settings.js";
import type { Run } from "./run.js";

export interface CommitOptions {
  /** Stored with the offset. */
  readonly metadata?: string;
  /** The offset that must be stored now; -1: none. OffsetMismatch if it is another. */
  readonly expected?: Offset;
}

export class Partition {
  /** Use `Worker`: partitions are made for handlers. */
  constructor(
    private readonly run: Run,
    /** The next offset to read: the committed one, or where the setting `start` says. */
    readonly position: bigint,
  ) {}

  get topic(): string {
    return this.run.holding.topic;
  }

  /** Counts from 0. */
  get number(): number {
    return this.run.holding.partition;
  }

  /** Greater each time that this process is handed the partition. */
  get token(): number {
    return this.run.holding.token;
  }

  /** True until the partition is given back or lost. */
  get valid(): boolean {
    return this.run.isValid;
  }

  /**
   * Aborted when the partition is to be given back: finish and commit until `deadlineMs`. A
   * handler need not look at it: the next `commit` stores, and then ends the handler.
   */
  get revoking(): AbortSignal {
    return this.run.revoking.signal;
  }

  /** Aborted when the partition is given back or lost: nothing done from now on counts. */
  get signal(): AbortSignal {
    return this.run.over.signal;
  }

  /** Epoch milliseconds by which a revoked partition is given back; undefined: it is not revoked. */
  get deadlineMs(): number | undefined {
    return this.run.deadlineMs;
  }

  /**
   * Store progress; resolves when it is durable.
   *
   * @param offset the next offset to read.
   * @throws PartitionRevoked: it is stored, and the partition is being revoked: let it pass, so
   *   that the handler ends. StaleMember: nothing is stored, the partition was given back or lost.
   *   OffsetMismatch, CommitFailed: it was refused. Unavailable: nobody answered for 30 s.
   */
  commit(offset: Offset, options: CommitOptions = {}): Promise<void> {
    const committed = this.run.commit(offset, options);
    committed.catch((error: unknown) => this.run.sayRefused(error));
    return committed;
  }

  /** The work is done: the handler, once it returns, is not called again for this holding. */
  done(): void {
    this.run.isDone = true;
  }

  toString(): string {
    return this.run.holding.name;
  }
}
