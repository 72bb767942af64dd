// Ways to hold the library wrong, each with the sentence that shows the right form.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker, type WorkerSettings } from "../src/index.js";

const TOPICS = { topics: { invoices: 12 } };

function made(settings: object, bootstrap: unknown = "127.0.0.1:7400"): Worker {
  return new Worker(bootstrap as string, "billing", settings as WorkerSettings);
}

test("a wrong setting is refused in a sentence that shows the right form", () => {
  const cases: [object, RegExp][] = [
    [{ ...TOPICS, sessionTimeout: 5 }, /"sessionTimeout"; the nearest is "sessionTimeoutMs"/],
    [{ ...TOPICS, session_timeout_ms: 5 }, /nearest is "sessionTimeoutMs"/],
    [{ topics: ["invoices"] }, /topics: \{ "invoices": 12 \}/],
    [{ topics: "invoices" }, /topics: \{ "invoices": 12 \}/],
    [{ topics: { invoices: "12" } }, /topic invoices has 12 partitions: it is a whole number/],
    [{ topics: {} }, /topics are empty/],
    [{}, /topics are missing/],
    [{ ...TOPICS, sessionTimeoutMs: "45s" }, /a number of milliseconds, for instance 45000/],
    [
      { ...TOPICS, sessionTimeoutMs: 6_000, heartbeatIntervalMs: 3_000 },
      /heartbeatIntervalMs 3000 is too long.*400/,
    ],
    [{ ...TOPICS, heartbeatIntervalMs: 0 }, /a number of milliseconds, for instance 3000/],
    [{ ...TOPICS, assignors: "sticky" }, /one of "range", "cooperative-sticky"/],
    [{ ...TOPICS, start: "latest" }, /needs logEnd/],
    [{ ...TOPICS, onError: "ignore" }, /one of "retry", "release", "stop"/],
    [{ ...TOPICS, maxAttempts: 0 }, /a number of calls, 1 or more/],
  ];
  for (const [settings, message] of cases) assert.throws(() => made(settings), message);
});

test("an address has a port", () => {
  assert.throws(() => made(TOPICS, "localhost"), /host and port, for instance "localhost:7400"/);
  assert.throws(() => made(TOPICS, ["a:1", "b:"]), /"b:7400"/);
  assert.throws(() => made(TOPICS, "a:99999"), /is no address/);
  assert.throws(() => made(TOPICS, 7400), /7400 is no address: "127.0.0.1:7400"/);
  made(TOPICS, "a:1, b:2");
  made(TOPICS, ["[::1]:7400"]);
});

test("what has an obvious meaning is accepted", () => {
  made({ ...TOPICS, assignors: "range" });
  made({ ...TOPICS, sessionTimeoutMs: 6_000 });
  made({ topics: new Map([["invoices", 12]]), start: "latest", logEnd: () => 5 });
});

test("a handler is a function of one parameter", () => {
  const worker = made(TOPICS);
  const handler = worker.handler as (handler: unknown, settings?: object) => unknown;
  const tell = (wrong: unknown, settings?: object) => () => handler.call(worker, wrong, settings);
  assert.throws(tell(5), /a handler is a function: worker.handler\(async/);
  assert.throws(
    tell(async function* () {}),
    /no generator/,
  );
  assert.throws(
    tell((a: unknown, b: unknown) => [a, b]),
    /one parameter, the partition, not 2/,
  );
  assert.throws(
    tell(() => {}, { topics: "invoices" }),
    /nearest is "topic"/,
  );
  const handle = (): void => {};
  assert.equal(handler.call(worker, handle), handle);
  assert.throws(tell(handle), /topic of its own/);
});

test("a topic without a handler is refused at start", async () => {
  await assert.rejects(made(TOPICS).serve(), /topic invoices has no handler/);
  const worker = made({ topics: { invoices: 1, refunds: 1 } });
  worker.handler(() => {}, { topic: "invoices" });
  await assert.rejects(worker.serve(), /topic refunds has no handler.*\{ topic: "refunds" \}/);
  await assert.rejects(worker.serve(), /runs once/);
});
