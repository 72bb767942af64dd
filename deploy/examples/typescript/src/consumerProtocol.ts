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
// Newer versions only append, so a reader takes what it knows and leaves the rest.

export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** The bytes are not what they should be. */
export class MalformedPayload extends Error {}

/** An eager member's subscription: it holds nothing while it joins. */
export function encodeSubscription(topics: readonly string[]): Buffer {
  const out = new Writer();
  out.int16(1);
  out.int32(topics.length);
  for (const topic of [...topics].sort()) out.string(topic);
  out.int32(-1); // No user data.
  out.int32(0); // No partitions owned.
  return out.bytes();
}

/** The topics of a subscription, which all that a range assignor reads of it. */
export function decodeSubscribedTopics(metadata: Buffer): string[] {
  const reader = new Reader(metadata);
  reader.version();
  return Array.from({ length: reader.length(2) }, () => reader.string());
}

export function encodeAssignment(partitions: readonly TopicPartition[]): Buffer {
  const byTopic = new Map<string, number[]>();
  for (const { topic, partition } of partitions) {
    byTopic.set(topic, [...(byTopic.get(topic) ?? []), partition]);
  }
  const out = new Writer();
  out.int16(1);
  out.int32(byTopic.size);
  for (const [topic, numbers] of [...byTopic].sort(([a], [b]) => (a < b ? -1 : 1))) {
    out.string(topic);
    out.int32(numbers.length);
    for (const number of numbers.sort((a, b) => a - b)) out.int32(number);
  }
  out.int32(-1); // No user data.
  return out.bytes();
}

/** What a leader of any language has given. No bytes at all: it has left this member out. */
export function decodeAssignment(assignment: Buffer): TopicPartition[] {
  if (assignment.length === 0) return [];
  const reader = new Reader(assignment);
  reader.version();
  const partitions: TopicPartition[] = [];
  for (let topics = reader.length(6); topics > 0; topics--) {
    const topic = reader.string();
    for (let numbers = reader.length(4); numbers > 0; numbers--) {
      partitions.push({ topic, partition: reader.int32() });
    }
  }
  return partitions;
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
