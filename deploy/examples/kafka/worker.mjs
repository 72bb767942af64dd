// A worker with kafkajs, in one group with worker.py.
//
//     node worker.mjs [BOOTSTRAP]
import kafkajs from "kafkajs";
import { roundrobin } from "./roundrobin.mjs";

const ROWS = 20; // Rows of a partition: numbers here.
const [bootstrap = "127.0.0.1:9092"] = process.argv.slice(2);
const kafka = new kafkajs.Kafka({
  brokers: [bootstrap],
  clientId: "node",
  logLevel: kafkajs.logLevel.ERROR,
});
const consumer = kafka.consumer({
  groupId: "orders",
  partitionAssigners: [roundrobin],
  // After five tries, its default, a consumer joins anew, and the group rebalances.
  retry: { retries: 1000, maxRetryTime: 5000 },
});
const positions = new Map();

consumer.on(consumer.events.REBALANCING, () => positions.clear());
consumer.on(consumer.events.GROUP_JOIN, async ({ payload }) => {
  positions.clear();
  const owned = payload.memberAssignment.orders ?? [];
  const stored = await fetchOffsets();
  for (const number of owned) positions.set(number, Math.max(stored.get(number) ?? 0, 0));
  console.log("node works on", ...[...owned].sort((a, b) => a - b));
});

const admin = kafka.admin();

async function fetchOffsets() {
  const [{ partitions }] = await admin.fetchOffsets({ groupId: "orders", topics: ["orders"] });
  return new Map(partitions.map((it) => [it.partition, Number(it.offset)]));
}

await admin.connect();
await consumer.connect();
await consumer.subscribe({ topics: ["orders"] });
await consumer.run({ autoCommit: false, eachMessage: async () => {} });

let isStopping = false;
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (isStopping = true));
while (!isStopping) {
  for (const [partition, position] of positions) {
    if (position === ROWS) continue;
    // Handle the row here; then it is done.
    positions.set(partition, position + 1);
    try {
      await consumer.commitOffsets([{ topic: "orders", partition, offset: `${position + 1}` }]);
    } catch (error) {
      console.error(error.message); // Somebody else has the partition by now.
    }
  }
  await new Promise((resolve) => setTimeout(resolve, 50));
}
await consumer.disconnect();
await admin.disconnect();
