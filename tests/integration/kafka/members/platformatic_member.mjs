// A member with @platformatic/kafka.
import { Consumer } from "@platformatic/kafka";
import { options, orders, Ownership } from "./member_lines.mjs";

const owned = new Ownership();
const consumer = new Consumer({
  groupId: options.group,
  clientId: options.client_id,
  bootstrapBrokers: options.bootstrap.split(","),
  groupInstanceId: options.instance ?? undefined,
  sessionTimeout: options.session_ms,
  rebalanceTimeout: options.rebalance_ms,
  heartbeatInterval: 300,
  maxWaitTime: 500,
  metadataMaxAge: 2000,
  autocommit: false,
  protocols: options.assignor.split(",").map((name) => ({ name, version: 1 })),
  retryDelay: 200,
  ...options.more,
});
consumer.on("consumer:group:join", () => {
  const assigned = consumer.assignments ?? [];
  owned.replace(assigned.flatMap(({ topic, partitions }) => partitions.map((n) => [topic, n])));
});
consumer.on("consumer:group:rebalance", () => owned.replace([]));

async function commit() {
  for (;;) {
    const owned_now = owned.offsets();
    const offsets = owned_now.map(([topic, partition, offset]) => ({
      topic,
      partition,
      offset: BigInt(offset),
      leaderEpoch: -1,
    }));
    try {
      if (offsets.length) await consumer.commit({ offsets });
      if (offsets.length) return owned.committed(owned_now);
    } catch (error) {
      console.error("commit", error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

const stream = await consumer.consume({ topics: options.topics, mode: "committed", fallbackMode: "earliest" });
stream.on("error", (error) => console.error("stream", error.message));
stream.on("data", () => {});
for await (const order of orders()) {
  if (order === "leave") break;
  if (order === "commit") await commit();
}
await stream.close();
await consumer.close(true);
process.exit(0);
