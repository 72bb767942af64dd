// Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, byte for byte.
//
// The coordinator does not look into `metadata` and `assignment`; members of one group do, so all
// of them, in whatever language, write these bytes. All integers are big-endian:
//
//   subscription  version int16 | topics [string] | user data bytes?
//                 version 1 on:  | owned partitions [topic string, partitions [int32]]
//                 version 2 on:  | generation int32
//                 version 3 on:  | rack string?
//   assignment    version int16 | [topic string, partitions [int32]] | user data bytes?
//
// Newer versions only append, so a reader takes what it knows and leaves the rest. Topics and
// partitions are written sorted: equal subscriptions give equal bytes, and a member that joins
// again with nothing new does not look like one that changed its mind.

import { byTopic, sorted, type TopicPartition } from "../partitions.js";

const NEWEST_VERSION = 3;
const NO_GENERATION = -1;

/** The bytes are not what they should be. */
export class MalformedPayload extends Error {
  override readonly name = "MalformedPayload";
}

export interface Subscription {
  readonly topics: readonly string[];
  /** What the member holds while it joins; an eager one holds nothing. */
  readonly owned: readonly TopicPartition[];
  /** The generation in which it was given them; -1 if it cannot tell. */
  readonly generation: number;
  /** Bytes of the assignor, and the member's declaration. */
  readonly userData?: Buffer | undefined;
}

export interface Assignment {
  readonly partitions: readonly TopicPartition[];
  readonly userData: Buffer | undefined;
}

export function encodeSubscription({ topics, owned, generation, userData }: Subscription): Buffer {
  const out = new Writer();
  out.int16(NEWEST_VERSION);
  const names = [...new Set(topics)].sort();
  out.int32(names.length);
  for (const topic of names) out.string(topic);
  out.nullableBytes(userData);
  out.partitions(owned);
  out.int32(generation);
  out.int16(-1); // No rack.
  return out.bytes();
}

/** @throws MalformedPayload */
export function decodeSubscription(metadata: Buffer): Subscription {
  const reader = new Reader(metadata);
  const version = reader.version();
  const topics = Array.from({ length: reader.length(2) }, () => reader.string());
  const userData = reader.nullableBytes();
  const owned = version >= 1 ? reader.partitions() : [];
  let generation = version >= 2 ? reader.int32() : NO_GENERATION;
  // Before version 2, a cooperative member writes its generation as user data.
  if (generation === NO_GENERATION && userData?.length === 4) generation = userData.readInt32BE();
  return { topics, owned, generation, userData };
}

export function encodeAssignment({ partitions, userData }: Assignment): Buffer {
  const out = new Writer();
  out.int16(NEWEST_VERSION);
  out.partitions(partitions);
  out.nullableBytes(userData);
  return out.bytes();
}

/**
 * What a leader of any language has given. No bytes at all: it has left this member out.
 *
 * @throws MalformedPayload
 */
export function decodeAssignment(assignment: Buffer): Assignment {
  if (assignment.length === 0) return { partitions: [], userData: undefined };
  const reader = new Reader(assignment);
  reader.version();
  return { partitions: reader.partitions(), userData: reader.nullableBytes() };
}

class Writer {
  private readonly parts: Buffer[] = [];

  int16(value: number): void {
    const bytes = Buffer.alloc(2);
    bytes.writeInt16BE(value);
    this.parts.push(bytes);
  }

  int32(value: number): void {
    const bytes = Buffer.alloc(4);
    bytes.writeInt32BE(value);
    this.parts.push(bytes);
  }

  string(value: string): void {
    const bytes = Buffer.from(value);
    this.int16(bytes.length);
    this.parts.push(bytes);
  }

  nullableBytes(value: Buffer | undefined): void {
    this.int32(value?.length ?? -1);
    if (value !== undefined) this.parts.push(value);
  }

  partitions(partitions: readonly TopicPartition[]): void {
    const topics = byTopic(sorted(partitions));
    this.int32(topics.size);
    for (const [topic, found] of topics) {
      this.string(topic);
      this.int32(found.length);
      for (const { partition } of found) this.int32(partition);
    }
  }

  bytes(): Buffer {
    return Buffer.concat(this.parts);
  }
}

class Reader {
  private position = 0;

  constructor(private readonly data: Buffer) {}

  version(): number {
    const version = this.take(2).readInt16BE();
    if (version < 0) throw new MalformedPayload(`version ${version}`);
    return version;
  }

  int32(): number {
    return this.take(4).readInt32BE();
  }

  /** A length that the remaining bytes can bear, so that no number allocates much. */
  length(smallestElement: number): number {
    const length = this.int32();
    if (length < 0 || length * smallestElement > this.data.length - this.position) {
      throw new MalformedPayload(`${length} elements at byte ${this.position}`);
    }
    return length;
  }

  string(): string {
    return this.take(this.take(2).readInt16BE()).toString();
  }

  nullableBytes(): Buffer | undefined {
    const length = this.int32();
    return length === -1 ? undefined : this.take(length);
  }

  partitions(): TopicPartition[] {
    const partitions: TopicPartition[] = [];
    for (let topics = this.length(6); topics > 0; topics--) {
      const topic = this.string();
      for (let numbers = this.length(4); numbers > 0; numbers--) {
        partitions.push({ topic, partition: this.int32() });
      }
    }
    return partitions;
  }

  private take(length: number): Buffer {
    const end = this.position + length;
    if (length < 0 || end > this.data.length) {
      throw new MalformedPayload(`${length} bytes at byte ${this.position} of ${this.data.length}`);
    }
    const taken = this.data.subarray(this.position, end);
    this.position = end;
    return taken;
  }
}
