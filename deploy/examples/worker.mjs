// A member of a session group, written on the contract alone: how-to/another-language.md.
//     npm ci
//     node worker.mjs 127.0.0.1:7400 billing invoices 12
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
const [bootstrap, group_id, TOPIC, PARTITIONS] = process.argv.slice(2);
const { WORK_MS = 500, PROTOS = new URL("../../protos", import.meta.url).pathname } = process.env;
const FORMS = { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true };
const files = ["group", "session"].map((name) => `coordinator/v1/${name}.proto`);
const { v1 } = grpc.loadPackageDefinition(
  loadSync(files, { includeDirs: [PROTOS], ...FORMS })).coordinator;

/** Milliseconds, on Linux by a clock that also counts the time for which the machine sleeps. */
const UP = existsSync("/proc/uptime") && "/proc/uptime";
const now = () => (UP ? parseFloat(readFileSync(UP, "latin1")) * 1_000 : performance.now());

// --- Work: a holding is a partition under a token ------------------------------------------------
const holdings = new Map(); // By name: all that is held, draining and suspended ones too.
const acks = new Map(); // By name: the last one, which is repeated if its order comes again.
let [leaseMs, progress] = [0, 0];

/** Time since the lease of a holding was renewed, as a share of the lease. */
const age = (h) => (now() - h.renewedAt) / leaseMs;

async function work(h) {
  while (!h.isLost && !h.handoff_id) {
    const mayBegin = age(h) < 2 / 3; // Else it waits until the lease is renewed.
    await sleep(mayBegin ? Number(WORK_MS) : 50); // The work on the row at h.offset.
    if (!mayBegin || !(await commit(h, h.offset + 1n))) continue;
    console.log(`${h.name} row ${h.offset++} token ${h.token}`);
    progress += 1;
  }
  if (h.isLost) return;
  holdings.delete(h.name);
  acknowledge(h, "RELEASED", h.handoff_id, String(h.offset));
}

/** Store an offset under the partition's token. False: it is not known to be stored. */
async function commit(h, offset) {
  const one = { partition_index: h.partition, committed_offset: String(offset), token: h.token };
  const topics = [{ name: h.topic, partitions: [one] }];
  while (!h.isLost && age(h) < 0.9) {
    const request = { group_id, member_id: me.member_id, topics };
    const answer = await call(me.address, "OffsetCommit", request).catch(() => null);
    const code = answer?.topics[0].partitions[0].error_code;
    if (code === "NONE") return true;
    if (code === "FENCED_TOKEN" || code === "UNKNOWN_MEMBER_ID") lose(h);
    else await sleep(100); // No answer, or another node has the group: the same commit again.
  }
  return false;
}

/** Nothing of a holding counts any more, and its work ends without a commit. */
function lose(h) {
  console.log(`${h.name} lost token ${h.token}`);
  h.isLost = true;
  holdings.delete(h.name);
}

function acknowledge({ name, topic, partition, token }, kind, handoff_id, position) {
  const before = acks.get(name);
  const isRepeated = before?.kind === kind && before.handoff_id === handoff_id;
  acks.set(name, isRepeated ? before : { topic, partition, kind, token, handoff_id, position });
  stream?.write({ ack: { partitions: [acks.get(name)] } });
}

// --- The session: one stream at a time -----------------------------------------------------------
const NEW = { session_id: "", member_id: "", stream_number: 0, beats: 0, epoch: 0n, version: 0n };
const incarnation = { id: randomBytes(16), started_at_ms: Date.now() };
const me = { ...NEW, address: bootstrap, renewedAt: 0 };
const FOR_GOOD = /^(FENCED_|INVALID_|INCONSISTENT_|GROUP_MAX_SIZE_|GROUP_AUTH|SUPERSEDED)/;
let stream;
function call(address, name, request) {
  const stub = new v1.GroupCoordinator(address, grpc.credentials.createInsecure());
  const ask = promisify(stub[name].bind(stub));
  return ask(request, { deadline: Date.now() + 2_000 }).finally(() => stub.close());
}

const range = (h) => ({ first: h.partition, last: h.partition, first_token: h.token });
const held = () => [...holdings.values()].map((h) => ({ name: h.topic, partitions: [range(h)] }));

/** Be a member on one stream until it ends; returns why. */
async function attend() {
  const client = new v1.GroupSessions(me.address, grpc.credentials.createInsecure());
  const sent = new Map([["0", now()]]); // By number of the heartbeat, 0 for the Attach.
  const pages = [];
  let [heardAt, hasAskedForAll, timer] = [now(), false, null];

  function beat(whole) {
    sent.set(String(++me.beats), now());
    const applied = { applied_epoch: String(me.epoch), applied_version: String(me.version) };
    hasAskedForAll ||= whole;
    const said = { number: me.beats, ...applied, whole, progress, held: { topics: held() } };
    stream.write({ heartbeat: said });
  }

  /** The lease counts from when that heartbeat was sent, and not from its acknowledgement. */
  function acknowledged(number, expiring) {
    heardAt = now();
    for (const each of sent.keys()) if (Number(each) < Number(number)) sent.delete(each);
    me.renewedAt = Math.max(me.renewedAt, sent.get(number) ?? 0);
    for (const h of holdings.values()) {
      const ranges = expiring.filter((it) => it.name === h.topic).flatMap((it) => it.partitions);
      h.isEnding ||= ranges.some((it) => it.first <= h.partition && h.partition <= it.last);
      if (h.isEnding) continue;
      if (age(h) < 0.9) h.renewedAt = Math.max(h.renewedAt, me.renewedAt);
      else if (!hasAskedForAll) beat(true); // Suspended: only a whole state may resume it.
    }
  }

  /** All orders, or what has changed since a version. */
  function receive(orders) {
    if (BigInt(orders.coordinator_epoch) < me.epoch) return;
    const gap = BigInt(orders.based_on ?? me.version) - me.version;
    if (gap > 0n) beat(true);
    if (gap !== 0n) return;
    pages.push(...orders.topics);
    if (orders.is_part) return;
    const named = new Set();
    for (const { name: topic, ranges } of pages.splice(0))
      for (const { partitions, committed_offsets, ...order } of ranges)
        for (let n = 0; n <= partitions.last - partitions.first; n++) {
          const [partition, first] = [partitions.first + n, BigInt(partitions.first_token)];
          const it = { name: `${topic}-${partition}`, topic, partition };
          it.token = String(first && first + BigInt(n));
          obey(it, order, BigInt(committed_offsets[n] ?? -1), sent.get(orders.answers) ?? 0);
          named.add(it.name);
        }
    [me.epoch, me.version] = [BigInt(orders.coordinator_epoch), BigInt(orders.version)];
    if (orders.based_on !== undefined) return;
    hasAskedForAll = false;
    for (const h of holdings.values()) if (!named.has(h.name)) lose(h);
    for (const name of acks.keys()) if (!named.has(name)) acks.delete(name);
  }

  function obey(it, { order, handoff_id }, committed, askedAt) {
    if (order === "WARM") return acknowledge(it, "READY", handoff_id); // Nothing to prepare.
    let h = holdings.get(it.name);
    if (h && h.token !== it.token) h = lose(h);
    if (order === "DRAIN" && h) return (h.handoff_id = handoff_id); // `work` releases it.
    if (order !== "ACTIVE") {
      if (h) lose(h);
      return acknowledge(it, "RELEASED", handoff_id);
    }
    if (h) return (h.renewedAt = Math.max(h.renewedAt, now() - askedAt < 0.9 * leaseMs && askedAt));
    h = { ...it, offset: committed < 0n ? 0n : committed, renewedAt: me.renewedAt };
    holdings.set(h.name, h);
    acks.delete(h.name);
    work(h);
  }

  stream = client.Session();
  const topics = [{ name: TOPIC, partitions: Number(PARTITIONS) }];
  const session = { session_id: me.session_id, stream_number: ++me.stream_number, held: held() };
  const attach = { group_id, incarnation, client_id: `js-${process.pid}`, topics, ...session };
  stream.write({ attach: { ...attach, coordinator_epoch: String(me.epoch) } });
  const why = await new Promise((over) => {
    stream.on("error", (error) => over({ reason: error.details }));
    stream.on("end", () => over({ reason: "it was closed" }));
    stream.on("data", ({ message, attached: at, heartbeat_ack: ack, ...it }) => {
      if (message === "heartbeat_ack") return acknowledged(ack.number, ack.expiring);
      if (message === "orders") return receive(it.orders);
      if (message === "refused") return over({ ...it.refused, reason: it.refused.error_code });
      if (message === "go_away") return over(it.go_away);
      Object.assign(me, { session_id: at.session_id, member_id: at.member_id });
      leaseMs = at.lease_ms;
      acknowledged("0", []);
      if (at.orders) receive(at.orders);
      const tick = () => (now() - heardAt > leaseMs ? over({ reason: "silence" }) : beat(false));
      timer ??= setInterval(tick, at.heartbeat_interval_ms);
    });
  });
  clearInterval(timer);
  stream = void stream.cancel();
  client.close();
  return why;
}

function leave(signal) {
  if (!stream) process.exit(1); // Its lease ends by itself.
  stream.write({ leave: { kind: "DRAIN", within_ms: 10_000, reason: signal } });
}
process.once("SIGTERM", leave).once("SIGINT", leave);

for (;;) {
  const { reason, error_message = "", retry_after_ms } = await attend();
  if (reason === "LEFT" || reason === "DRAINED") process.exit(0);
  console.log(`the stream has ended: ${reason} ${error_message}`);
  const isGone = reason === "UNKNOWN_MEMBER_ID";
  if (isGone || FOR_GOOD.test(reason)) [...holdings.values()].forEach(lose);
  if (FOR_GOOD.test(reason)) process.exit(1);
  if (isGone) Object.assign(me, NEW);
  await sleep(retry_after_ms || 200);
  const found = await call(bootstrap, "FindCoordinator", { group_id }).catch(() => null);
  if (found?.error_code === "NONE") me.address = `${found.host}:${found.port}`;
}
