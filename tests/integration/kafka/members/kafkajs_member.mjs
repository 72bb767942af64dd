// A member with kafkajs. Its own assigner is called RoundRobinAssigner; one named `roundrobin`, as
// other clients call theirs, is in assigners.mjs.
import kafkajs from "kafkajs";
import { roundrobin } from "./roundrobin.mjs";
import { options, Ownership, orders } from "./member_lines.mjs";

const { Kafka, logLevel, PartitionAssigners } = kafkajs;
const owned = new Ownership();
const assigners = { roundrobin, RoundRobinAssigner: PartitionAssigners.roundRobin };
const kafka = new Kafka({
  brokers: options.bootstrap.split(","),
  clientId: options.client_id,
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 1000 },
  ...options.more,
});
const consumer = kafka.consumer({
  groupId: options.group,
  sessionTimeout: options.session_ms,
  rebalanceTimeout: options.rebalance_ms,
  heartbeatInterval: 300,
  metadataMaxAge: 2000,
  maxWaitTimeInMs: 500,
  // After five tries, its default, it joins anew as another member.
  retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 1000 },
  partitionAssigners: options.assignor.split(",").map((name) => assigners[name]),
});
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  const assigned = Object.entries(payload.memberAssignment);
  owned.replace(assigned.flatMap(([topic, numbers]) => numbers.map((n) => [topic, n])));
});
consumer.on(consumer.events.REBALANCING, () => owned.replace([]));
consumer.on(consumer.events.CRASH, ({ payload }) => console.error("crash", payload.error.message));

async function commit() {
  for (;;) {
    const offsets = owned.offsets();
    const stored = offsets.map(([topic, partition, offset]) => ({
      topic,
      partition,
      offset: String(offset),
    }));
    try {
      if (stored.length) await consumer.commitOffsets(stored);
      if (stored.length) return owned.committed(offsets);
    } catch (error) {
      console.error("commit", error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

await consumer.connect();
await consumer.subscribe({ topics: options.topics, fromBeginning: true });
await consumer.run({ autoCommit: false, eachMessage: async () => {} });
for await (const order of orders()) {
  if (order === "leave") break;
  if (order === "commit") await commit();
}
await consumer.disconnect();
process.exit(0);
