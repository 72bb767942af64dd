// The settings of a worker: typed, with units in their names, and refused in a sentence that shows
// the right form.

import { credentials as grpc, type ChannelCredentials } from "@grpc/grpc-js";
import { hostname } from "node:os";
import { type AssignorName, ASSIGNORS } from "./assignors/index.js";
import { type Logger, stderrLogger } from "./log.js";
import type { MemberConfig } from "./machine/config.js";
import type { TopicPartition } from "./partitions.js";

/** Topic to its number of partitions. */
export type Topics = Readonly<Record<string, number>> | ReadonlyMap<string, number>;

/** A non-negative whole number; a `number` is exact up to 2^53. */
export type Offset = bigint | number;

/**
 * What becomes of a partition whose handler fails. `retry`: the handler is called again, from the
 * committed offset, after 1 s, 2 s, … 60 s. `release`: the partition is given up; if it comes
 * back, it rests for the pause that a retry would have made. `stop`: the worker leaves, and `run`
 * rejects with the error.
 */
export type ErrorPolicy = "retry" | "release" | "stop";

export interface ErrorSettings {
  /** Default: `retry`. */
  readonly onError?: ErrorPolicy;
  /** Failures in a row, without a commit between them; default: no limit. */
  readonly maxAttempts?: number;
  /** What follows after `maxAttempts`; default: `stop`. */
  readonly afterMaxAttempts?: Exclude<ErrorPolicy, "retry">;
}

export interface HandlerSettings extends ErrorSettings {
  /** The topic it handles; default: every topic without a handler of its own. */
  readonly topic?: string;
  /** `manual`: `commit` does not end the handler while the partition is revoked. */
  readonly drain?: "commit" | "manual";
}

export interface WorkerSettings extends ErrorSettings {
  /** Each topic with its number of partitions; or a function, asked again from time to time. */
  readonly topics: Topics | (() => Topics | Promise<Topics>);
  /** How often a function `topics` is asked; default 60 000. */
  readonly topicsRefreshMs?: number;
  /**
   * Default: `cooperative-sticky`, and `range` in a group that follows only that. All members of
   * a group need one in common. A list that names `range` too is eager.
   */
  readonly assignors?: AssignorName | readonly AssignorName[];
  /** Default: host name and process id. */
  readonly clientId?: string;
  /** Makes the member static: restarted within its session it takes its place back. */
  readonly instanceId?: string;
  /** Default 45 000: so long do the partitions of a worker that was killed rest. */
  readonly sessionTimeoutMs?: number;
  /** Default 60 000. Half of it is the deadline of a revocation. */
  readonly rebalanceTimeoutMs?: number;
  /** Default 3 000, and at most a third of the session. */
  readonly heartbeatIntervalMs?: number;
  /** Where a partition begins for which nothing is committed; default `earliest`. */
  readonly start?: "earliest" | "latest" | ((of: TopicPartition) => Offset | Promise<Offset>);
  /** The first offset there is; default 0. */
  readonly beginOffset?: (of: TopicPartition) => Offset | Promise<Offset>;
  /** The next offset that will be written; needed by `start: "latest"`. */
  readonly logEnd?: (of: TopicPartition) => Offset | Promise<Offset>;
  /** The first pause after a failure, and the longest; defaults 1 000 and 60 000. */
  readonly retryBackoffMs?: number;
  readonly retryBackoffMaxMs?: number;
  /** A handler that returned is called again after this; default 1 000. */
  readonly idleMs?: number;
  /** Time that handlers have to end after `stop`; default 20 000. */
  readonly graceMs?: number;
  /** Time that a handler has to end whose partition came back already; default 300 000. */
  readonly progressTimeoutMs?: number;
  /** Of gRPC: TLS, or TLS with a token; default: plain text. */
  readonly credentials?: ChannelCredentials;
  /** Default: lines of INFO and WARN on stderr. */
  readonly logger?: Logger;
}

/** Settings with all their defaults. */
export interface ParsedSettings extends Required<
  Omit<WorkerSettings, "instanceId" | "logEnd" | "topics">
> {
  readonly bootstrap: readonly string[];
  readonly askTopics: () => Promise<ReadonlyMap<string, number>>;
  readonly areTopicsFixed: boolean;
  readonly logEnd: WorkerSettings["logEnd"];
  readonly config: Omit<MemberConfig, "topics">;
}

const TIMES = {
  topicsRefreshMs: 60_000,
  sessionTimeoutMs: 45_000,
  rebalanceTimeoutMs: 60_000,
  heartbeatIntervalMs: 3_000,
  retryBackoffMs: 1_000,
  retryBackoffMaxMs: 60_000,
  idleMs: 1_000,
  graceMs: 20_000,
  progressTimeoutMs: 300_000,
} as const;
const BEATS_A_SESSION_LEAST = 3;
const ERROR_NAMES = ["onError", "maxAttempts", "afterMaxAttempts"];
const HANDLER_NAMES = [...ERROR_NAMES, "topic", "drain"];
const NAMES = [
  ...Object.keys(TIMES),
  ...ERROR_NAMES,
  ...["topics", "assignors", "clientId", "instanceId", "start", "beginOffset", "logEnd"],
  ...["credentials", "logger"],
];

/** @throws TypeError: a setting is not what it should be; the message shows what it should be. */
export function parseSettings(
  bootstrap: string | readonly string[],
  groupId: string,
  settings: WorkerSettings,
): ParsedSettings {
  if (typeof groupId !== "string" || groupId === "") {
    throw new TypeError('the group needs a name: new Worker("127.0.0.1:7400", "billing", { … })');
  }
  if (typeof settings !== "object" || settings === null) {
    throw new TypeError("settings are missing: { topics: { invoices: 12 } }");
  }
  checkNames(settings, NAMES);
  checkErrorSettings(settings);
  const times = parseTimes(settings);
  if (times.heartbeatIntervalMs * BEATS_A_SESSION_LEAST > times.sessionTimeoutMs) {
    throw new TypeError(
      `heartbeatIntervalMs ${times.heartbeatIntervalMs} is too long for sessionTimeoutMs ` +
        `${times.sessionTimeoutMs}: at most a third of it, for instance ` +
        `${Math.max(1, Math.floor(times.sessionTimeoutMs / 15))}`,
    );
  }
  const { topics } = settings;
  if (typeof topics !== "function") checkTopics(topics);
  checkStart(settings);
  const assignors = checkAssignors(settings.assignors ?? "cooperative-sticky");
  const clientId = settings.clientId ?? `${hostname()}-${process.pid}`;
  return {
    ...times,
    bootstrap: checkBootstrap(bootstrap),
    askTopics: async () => checkTopics(typeof topics === "function" ? await topics() : topics),
    areTopicsFixed: typeof topics !== "function",
    assignors,
    clientId,
    start: settings.start ?? "earliest",
    beginOffset: settings.beginOffset ?? (() => 0n),
    logEnd: settings.logEnd,
    onError: settings.onError ?? "retry",
    maxAttempts: settings.maxAttempts ?? Infinity,
    afterMaxAttempts: settings.afterMaxAttempts ?? "stop",
    credentials: settings.credentials ?? grpc.createInsecure(),
    logger: settings.logger ?? stderrLogger(),
    config: {
      groupId,
      assignors,
      fallback: settings.assignors === undefined ? "range" : undefined,
      clientId,
      instanceId: settings.instanceId,
      sessionTimeoutMs: times.sessionTimeoutMs,
      rebalanceTimeoutMs: times.rebalanceTimeoutMs,
      heartbeatIntervalMs: times.heartbeatIntervalMs,
    },
  };
}

/** @throws TypeError: see `parseSettings`. */
export function checkHandlerSettings(settings: HandlerSettings): void {
  checkNames(settings, HANDLER_NAMES);
  checkErrorSettings(settings);
  checkOneOf("drain", settings.drain, ["commit", "manual"]);
}

/** @throws TypeError: it is no offset. */
export function toOffset(offset: Offset, what: string): bigint {
  if (typeof offset === "bigint") return offset;
  if (typeof offset === "number" && Number.isSafeInteger(offset)) return BigInt(offset);
  throw new TypeError(
    `${what} is ${String(offset)}: an offset is a whole number, 5n or 5, and a bigint from 2^53 on`,
  );
}

// --- Inside ---

function checkNames(settings: object, names: readonly string[]): void {
  for (const name of Object.keys(settings)) {
    if (names.includes(name)) continue;
    const nearest = [...names].sort((a, b) => distance(name, a) - distance(name, b))[0];
    throw new TypeError(`there is no setting "${name}"; the nearest is "${nearest}"`);
  }
}

function checkErrorSettings({ onError, maxAttempts, afterMaxAttempts }: ErrorSettings): void {
  checkOneOf("onError", onError, ["retry", "release", "stop"]);
  checkOneOf("afterMaxAttempts", afterMaxAttempts, ["release", "stop"]);
  if (maxAttempts !== undefined && !(Number.isInteger(maxAttempts) && maxAttempts > 0)) {
    throw new TypeError(`maxAttempts is ${maxAttempts}: it is a number of calls, 1 or more`);
  }
}

function checkOneOf(name: string, value: unknown, values: readonly string[]): void {
  if (value === undefined || values.includes(value as string)) return;
  throw new TypeError(`${name} is ${JSON.stringify(value)}: it is one of "${values.join('", "')}"`);
}

function parseTimes(settings: WorkerSettings): Record<keyof typeof TIMES, number> {
  const times: Record<keyof typeof TIMES, number> = { ...TIMES };
  for (const name of Object.keys(TIMES) as (keyof typeof TIMES)[]) {
    const value = settings[name] ?? TIMES[name];
    if (!Number.isInteger(value) || value <= 0) {
      throw new TypeError(
        `${name} is ${String(value)}: it is a number of milliseconds, for instance ${TIMES[name]}`,
      );
    }
    times[name] = value;
  }
  if (settings.heartbeatIntervalMs === undefined) {
    const mostMs = Math.floor(times.sessionTimeoutMs / BEATS_A_SESSION_LEAST);
    times.heartbeatIntervalMs = Math.max(1, Math.min(times.heartbeatIntervalMs, mostMs));
  }
  return times;
}

function checkBootstrap(bootstrap: string | readonly string[]): string[] {
  if (typeof bootstrap !== "string" && !Array.isArray(bootstrap)) {
    throw new TypeError(`${String(bootstrap)} is no address: "127.0.0.1:7400", or a list of them`);
  }
  const addresses =
    typeof bootstrap === "string" ? bootstrap.split(",").map((one) => one.trim()) : [...bootstrap];
  if (addresses.length === 0) throw new TypeError('an address is missing: "127.0.0.1:7400"');
  for (const address of addresses) {
    const port = Number(/^.+:(\d{1,5})$/.exec(address)?.[1] ?? 0);
    if (port > 0 && port < 65_536) continue;
    const host = address.replace(/:\D*$/, "") || "127.0.0.1";
    throw new TypeError(`"${address}" is no address: host and port, for instance "${host}:7400"`);
  }
  return addresses;
}

function checkTopics(topics: Topics): ReadonlyMap<string, number> {
  if (typeof topics === "string" || Array.isArray(topics)) {
    const [first = "invoices"] = typeof topics === "string" ? [topics] : (topics as string[]);
    throw new TypeError(
      `topics need their numbers of partitions: topics: { "${first}": 12 }, not ` +
        JSON.stringify(topics),
    );
  }
  if (typeof topics !== "object" || topics === null) {
    throw new TypeError("topics are missing: topics: { invoices: 12 }, or a function");
  }
  const found = new Map(topics instanceof Map ? topics : Object.entries(topics));
  if (found.size === 0) throw new TypeError("topics are empty: topics: { invoices: 12 }");
  for (const [topic, count] of found) {
    if (Number.isInteger(count) && (count as number) > 0) continue;
    throw new TypeError(
      `topic ${topic} has ${String(count)} partitions: it is a whole number, 1 or more, as in ` +
        `topics: { "${topic}": 12 }`,
    );
  }
  return found as ReadonlyMap<string, number>;
}

function checkAssignors(assignors: AssignorName | readonly AssignorName[]): AssignorName[] {
  const names = typeof assignors === "string" ? [assignors] : [...assignors];
  if (names.length === 0) throw new TypeError('assignors are empty: ["cooperative-sticky"]');
  for (const name of names) checkOneOf("assignors", name, Object.keys(ASSIGNORS));
  return names;
}

function checkStart({ start, logEnd }: WorkerSettings): void {
  if (typeof start !== "function") checkOneOf("start", start, ["earliest", "latest"]);
  if (start === "latest" && logEnd === undefined) {
    throw new TypeError(
      'start "latest" needs logEnd: start: "latest", logEnd: (of) => endOf(of.topic, of.partition)',
    );
  }
}

/** How many letters differ: Levenshtein's distance. */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const replaced = row[j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[other.length]!;
}
