// A worker that counts through its partitions, a row every few milliseconds, and commits each.
//
// What happens to its partitions is printed as a line of JSON each; the library's own lines go to
// stderr. SIGTERM and SIGINT have it finish what it has begun, commit and leave.

import { parseArgs } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { type AssignorName, FatalError, Worker } from "./index.js";

const { values } = parseArgs({
  options: {
    bootstrap: { type: "string", default: "127.0.0.1:7400" },
    group: { type: "string", default: "billing" },
    topic: { type: "string", default: "invoices" },
    partitions: { type: "string", default: "12" },
    assignors: { type: "string", default: "cooperative-sticky" },
    "instance-id": { type: "string" },
    "session-timeout-ms": { type: "string", default: "10000" },
    "rebalance-timeout-ms": { type: "string", default: "30000" },
    "heartbeat-interval-ms": { type: "string", default: "1000" },
    "row-ms": { type: "string", default: "100" },
  },
});

const worker = new Worker(values.bootstrap, values.group, {
  topics: { [values.topic]: Number(values.partitions) },
  assignors: values.assignors.split(",") as AssignorName[],
  sessionTimeoutMs: Number(values["session-timeout-ms"]),
  rebalanceTimeoutMs: Number(values["rebalance-timeout-ms"]),
  heartbeatIntervalMs: Number(values["heartbeat-interval-ms"]),
  instanceId: values["instance-id"],
});

function say(event: string, details: object = {}): void {
  console.log(JSON.stringify({ event, ...details }));
}

worker.handler(async (p) => {
  const { generation, isLeader } = worker.state;
  say("started", { partition: p.number, offset: Number(p.position), generation, leader: isLeader });
  let offset = p.position;
  try {
    for (;;) {
      await sleep(Number(values["row-ms"]), undefined, { signal: p.signal });
      offset += 1n;
      await p.commit(offset); // Ends the handler here once p is being revoked.
    }
  } finally {
    const { valid } = p;
    say("ended", { partition: p.number, offset: Number(offset), valid });
  }
});

try {
  await worker.run();
  say("left");
} catch (error) {
  if (!(error instanceof FatalError)) throw error;
  say("refused", { reason: error.message });
  process.exitCode = 1;
}
