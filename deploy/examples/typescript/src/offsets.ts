// Progress: stored by commits, asked for when partitions are taken over.

import type { TopicPartition } from "./consumerProtocol.js";
import { type Call, Coordinator, ELSEWHERE, isMalformedCall, isServiceError, pause, Refused } from "./coordinator.js";
import { ErrorCode } from "./generated/coordinator/v1/errors.js";
import type { OffsetCommitResponse, OffsetFetchResponse } from "./generated/coordinator/v1/group.js";

export interface PartitionOffset extends TopicPartition {
  /** The next offset to read; -1n if none was ever committed. */
  readonly offset: bigint;
}

/** Who commits: only a member of the present generation may. */
export interface Identity {
  readonly groupId: string;
  readonly generationId: number;
  readonly memberId: string;
  readonly groupInstanceId: string | undefined;
}

/**
 * A partition from when it is handed to the owner until it is given back or lost. The same
 * partition handed out again is another holding: an object of its own.
 */
export class Holding {
  constructor(
    readonly topic: string,
    readonly partition: number,
    /** Where to begin; -1n if nothing was ever committed. */
    readonly offset: bigint,
  ) {}
}

/** How far a holding has come. */
export interface Progress {
  readonly holding: Holding;
  /** The next offset to read. */
  readonly offset: bigint;
}

/** Nothing was sent: these partitions are not, or no longer, the committer's. */
export class NotHeld extends Error {
  override readonly name = "NotHeld";
}

const CALL_TIMEOUT_MS = 10_000;

const RETRIABLE: ReadonlySet<ErrorCode> = new Set([
  ...ELSEWHERE,
  ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
  ErrorCode.REQUEST_TIMED_OUT,
  ErrorCode.UNSTABLE_OFFSET_COMMIT,
]);

export class Offsets {
  /** @param patienceMs how long an answer is asked for, again and again. */
  constructor(
    private readonly coordinator: Coordinator,
    private readonly patienceMs: number,
  ) {}

  /**
   * Store; returns when it is durable. Throws Refused if the group has moved on.
   *
   * @param identify asked before each attempt; what it throws ends the asking.
   */
  async commit(identify: () => Identity, offsets: readonly PartitionOffset[]): Promise<void> {
    const topics = byTopic(offsets, ({ partition, offset }) => ({
      partitionIndex: partition,
      committedOffset: offset,
      committedMetadata: "",
    })).map(([name, partitions]) => ({ name, partitions }));
    await this.ask<OffsetCommitResponse>(
      () => {
        const request = { ...identify(), topics, atomic: false, manifest: Buffer.alloc(0) };
        return (client, ...rest) => client.offsetCommit(request, ...rest);
      },
      (response) => response.topics.flatMap((t) => t.partitions.map((p) => p.errorCode)),
    );
  }

  /** What is stored for these partitions. */
  async fetch(groupId: string, partitions: readonly TopicPartition[]): Promise<PartitionOffset[]> {
    if (partitions.length === 0) return []; // No topics would ask for all that is stored.
    const topics = byTopic(partitions, ({ partition }) => partition).map(
      ([name, partitionIndexes]) => ({ name, partitionIndexes }),
    );
    const response = await this.ask<OffsetFetchResponse>(
      () =>
        (client, ...rest) => client.offsetFetch({ groupId, topics, requireStable: true }, ...rest),
      ({ errorCode, topics }) => [
        errorCode,
        ...topics.flatMap((t) => t.partitions.map((p) => p.errorCode)),
      ],
    );
    return response.topics.flatMap(({ name, partitions }) =>
      partitions.map((p) => ({
        topic: name,
        partition: p.partitionIndex,
        offset: p.committedOffset,
      })),
    );
  }

  /** An answer that is final, however often the coordinator moves meanwhile. */
  private async ask<Response extends { errorMessage: string }>(
    prepare: () => Call<Response>,
    codesOf: (response: Response) => ErrorCode[],
  ): Promise<Response> {
    const giveUpMs = performance.now() + this.patienceMs;
    for (let attempt = 0; ; attempt++) {
      let failure: unknown;
      const start = prepare();
      try {
        const response = await this.coordinator.call(start, CALL_TIMEOUT_MS);
        const code = codesOf(response).find((each) => each !== ErrorCode.NONE);
        if (code === undefined) return response;
        if (ELSEWHERE.has(code)) this.coordinator.hangUp();
        failure = new Refused(code, response.errorMessage);
        if (!RETRIABLE.has(code)) throw failure;
      } catch (error) {
        if (error === failure || !isServiceError(error) || isMalformedCall(error)) throw error;
        failure = error;
      }
      if (performance.now() >= giveUpMs) throw failure;
      await pause(attempt);
    }
  }
}

/** Topic to what `of` makes of each of its partitions: the contract has partitions by topic. */
function byTopic<Item extends TopicPartition, Result>(
  items: readonly Item[],
  of: (item: Item) => Result,
): [string, Result[]][] {
  const found = new Map<string, Result[]>();
  for (const item of items) {
    const results = found.get(item.topic);
    if (results === undefined) found.set(item.topic, [of(item)]);
    else results.push(of(item));
  }
  return [...found];
}
