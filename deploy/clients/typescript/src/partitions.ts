// Partitions as keys and as text: JavaScript compares objects by identity, so maps go by name.

export interface TopicPartition {
  readonly topic: string;
  /** Counts from 0. */
  readonly partition: number;
}

/** Partitions by name. */
export type Partitions = ReadonlyMap<string, TopicPartition>;

export const NO_PARTITIONS: Partitions = new Map();

/** `topic-number`: unique, since the last dash precedes the number. */
export function nameOf({ topic, partition }: TopicPartition): string {
  return `${topic}-${partition}`;
}

export function partitionsOf(items: Iterable<TopicPartition>): Partitions {
  return new Map(
    [...items].map(({ topic, partition }) => [nameOf({ topic, partition }), { topic, partition }]),
  );
}

export function union(one: Partitions, other: Partitions): Partitions {
  return new Map([...one, ...other]);
}

export function without(all: Partitions, gone: ReadonlyMap<string, unknown>): Partitions {
  return new Map([...all].filter(([name]) => !gone.has(name)));
}

/** By topic, then by number. */
export function sorted<Item extends TopicPartition>(items: Iterable<Item>): Item[] {
  return [...items].sort((a, b) =>
    a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1,
  );
}

/** Items by topic, topics in the order in which they come. */
export function byTopic<Item extends TopicPartition>(items: Iterable<Item>): Map<string, Item[]> {
  const topics = new Map<string, Item[]>();
  for (const item of items) {
    const found = topics.get(item.topic);
    if (found === undefined) topics.set(item.topic, [item]);
    else found.push(item);
  }
  return topics;
}

/** Short text: `invoices-0…5,8, refunds-1`; `nothing` if there are none. */
export function describe(items: Iterable<TopicPartition>): string {
  const texts = [...byTopic(sorted(items))].map(
    ([topic, found]) => `${topic}-${ranges(found.map(({ partition }) => partition))}`,
  );
  return texts.join(", ") || "nothing";
}

function ranges(numbers: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last !== undefined && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}…${last}`)).join(",");
}
