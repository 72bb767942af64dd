// The settings of members and workers: typed, with units in their names, and refused in a sentence
// that shows the right form.

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { credentials as grpc, type ChannelCredentials } from "@grpc/grpc-js";
import { type AssignorName, ASSIGNORS } from "./assignors/index.js";
import { type Logger, stderrLogger } from "./log.js";
import type { MemberConfig } from "./member/state.js";
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

/** Settings that members of both protocols have, and a worker too. */
interface CommonSettings {
  /** Default: host name and process id. */
  readonly clientId?: string;
  /** Of gRPC: TLS, or TLS with a token; default: plain text. */
  readonly credentials?: ChannelCredentials;
  /** Default: lines of INFO and WARN on stderr. */
  readonly logger?: Logger;
}

interface ClassicSettings {
  /**
   * Default: `cooperative-sticky`, and `range` in a group that follows only that. All members of
   * a group need one in common. A list that names `range` too is eager.
   */
  readonly assignors?: AssignorName | readonly AssignorName[];
  /** Makes the member static: restarted within its session it takes its place back. */
  readonly instanceId?: string;
  /** Default 45 000: so long do the partitions of a worker that was killed rest. */
  readonly sessionTimeoutMs?: number;
  /** Default 60 000. Half of it is the deadline of a revocation. */
  readonly rebalanceTimeoutMs?: number;
  /** Default 3 000, and at most a third of the session. */
  readonly heartbeatIntervalMs?: number;
}

interface SessionSettings {
  /** A place that is stable across restarts. */
  readonly memberName?: string;
  /** Share of the partitions, relative to the others'; default 1; 0: none. */
  readonly capacity?: number;
}

/** Settings of a `Member`. Those of the other protocol are refused. */
export type MemberSettings = CommonSettings & {
  /** Each topic with its number of partitions. */
  readonly topics: Topics;
} & (
    | ({ /** The default. */ readonly protocol?: "classic" } & ClassicSettings)
    | ({ readonly protocol: "session" } & SessionSettings)
  );

export interface WorkerSettings extends ErrorSettings, CommonSettings, ClassicSettings {
  /** Each topic with its number of partitions; or a function, asked again from time to time. */
  readonly topics: Topics | (() => Topics | Promise<Topics>);
  /** How often a function `topics` is asked; default 60 000. */
  readonly topicsRefreshMs?: number;
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
}

/** A member's settings with all their defaults. */
export interface ParsedMemberSettings {
  readonly bootstrap: readonly string[];
  readonly credentials: ChannelCredentials;
  readonly logger: Logger;
  readonly config: MemberConfig;
}

/** A worker's settings with all their defaults, beside those of its member. */
export interface ParsedSettings extends Required<
  Omit<WorkerSettings, keyof CommonSettings | keyof ClassicSettings | "logEnd" | "topics">
> {
  readonly askTopics: () => Promise<ReadonlyMap<string, number>>;
  readonly areTopicsFixed: boolean;
  readonly logEnd: WorkerSettings["logEnd"];
  /** Of its member, without `topics`. */
  readonly member: CommonSettings & ClassicSettings;
}

export const SESSION_TIMEOUT_MS = 45_000;
const MEMBER_TIMES = {
  sessionTimeoutMs: SESSION_TIMEOUT_MS,
  rebalanceTimeoutMs: 60_000,
  heartbeatIntervalMs: 3_000,
} as const;
const TIMES = {
  topicsRefreshMs: 60_000,
  retryBackoffMs: 1_000,
  retryBackoffMaxMs: 60_000,
  idleMs: 1_000,
  graceMs: 20_000,
  progressTimeoutMs: 300_000,
} as const;
const BEATS_A_SESSION_LEAST = 3;
const ERROR_NAMES = ["onError", "maxAttempts", "afterMaxAttempts"];
const HANDLER_NAMES = [...ERROR_NAMES, "topic", "drain"];
const COMMON_NAMES = ["clientId", "credentials", "logger"];
const CLASSIC_NAMES = [...COMMON_NAMES, ...Object.keys(MEMBER_TIMES), "assignors", "instanceId"];
const MEMBER_NAMES = {
  classic: [...CLASSIC_NAMES, "topics", "protocol"],
  session: [...COMMON_NAMES, "topics", "protocol", "memberName", "capacity"],
};
const NAMES = [
  ...[...CLASSIC_NAMES, ...Object.keys(TIMES), ...ERROR_NAMES],
  ...["topics", "start", "beginOffset", "logEnd"],
];

/** @throws TypeError: a setting is not what it should be; the message shows what it should be. */
export function parseMemberSettings(
  bootstrap: string | readonly string[],
  groupId: string,
  settings: MemberSettings,
): ParsedMemberSettings {
  checkCall(groupId, settings, "Member");
  const { protocol = "classic", topics, clientId, credentials, logger } = settings;
  checkOneOf("protocol", protocol, ["classic", "session"]);
  checkNames(settings, MEMBER_NAMES[protocol]);
  const classic: ClassicSettings = settings.protocol === "session" ? {} : settings;
  const session: SessionSettings = settings.protocol === "session" ? settings : {};
  const { capacity } = session;
  if (capacity !== undefined && !(Number.isFinite(capacity) && capacity >= 0)) {
    throw new TypeError(
      `capacity is ${String(capacity)}: it is a share, 0 or more, for instance 1`,
    );
  }
  return {
    bootstrap: checkBootstrap(bootstrap),
    credentials: credentials ?? grpc.createInsecure(),
    logger: logger ?? stderrLogger(),
    config: {
      groupId,
      protocol,
      topics: checkTopics(topics),
      clientId: clientId ?? `${hostname()}-${process.pid}`,
      assignors: checkAssignors(classic.assignors ?? "cooperative-sticky"),
      fallback: classic.assignors === undefined ? "range" : undefined,
      instanceId: classic.instanceId,
      ...parseMemberTimes(classic),
      memberName: session.memberName,
      capacity,
      incarnation: { id: randomBytes(16), startedAtMs: Date.now() },
    },
  };
}

/** @throws TypeError: as `parseMemberSettings`. */
export function parseSettings(
  bootstrap: string | readonly string[],
  groupId: string,
  settings: WorkerSettings,
): ParsedSettings {
  checkCall(groupId, settings, "Worker");
  checkNames(settings, NAMES);
  checkErrorSettings(settings);
  const times = parseTimes(TIMES, settings);
  const { topics } = settings;
  const areTopicsFixed = typeof topics !== "function";
  const names = Object.entries(settings).filter(([name]) => CLASSIC_NAMES.includes(name));
  const member: CommonSettings & ClassicSettings = Object.fromEntries(names);
  const example = areTopicsFixed ? topics : { unknown: 1 };
  parseMemberSettings(bootstrap, groupId, { ...member, topics: example });
  checkStart(settings);
  return {
    ...times,
    member,
    askTopics: async () => checkTopics(areTopicsFixed ? topics : await topics()),
    areTopicsFixed,
    start: settings.start ?? "earliest",
    beginOffset: settings.beginOffset ?? (() => 0n),
    logEnd: settings.logEnd,
    onError: settings.onError ?? "retry",
    maxAttempts: settings.maxAttempts ?? Infinity,
    afterMaxAttempts: settings.afterMaxAttempts ?? "stop",
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

function checkCall(groupId: unknown, settings: unknown, of: string): void {
  if (typeof groupId !== "string" || groupId === "") {
    throw new TypeError(`the group needs a name: new ${of}("127.0.0.1:7400", "billing", { … })`);
  }
  if (typeof settings !== "object" || settings === null) {
    throw new TypeError("settings are missing: { topics: { invoices: 12 } }");
  }
}

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

function parseTimes<Name extends string>(
  defaults: Readonly<Record<Name, number>>,
  settings: object,
): Record<Name, number> {
  const given = settings as { readonly [name in Name]?: unknown };
  const times: Record<Name, number> = { ...defaults };
  for (const name of Object.keys(defaults) as Name[]) {
    const value = given[name] ?? defaults[name];
    if (!Number.isInteger(value) || (value as number) <= 0) {
      throw new TypeError(
        `${name} is ${String(value)}: it is a number of milliseconds, for instance ${defaults[name]}`,
      );
    }
    times[name] = value as number;
  }
  return times;
}

function parseMemberTimes(settings: ClassicSettings): Record<keyof typeof MEMBER_TIMES, number> {
  const times = parseTimes(MEMBER_TIMES, settings);
  const { sessionTimeoutMs, heartbeatIntervalMs } = times;
  const mostMs = Math.floor(sessionTimeoutMs / BEATS_A_SESSION_LEAST);
  if (settings.heartbeatIntervalMs === undefined) {
    times.heartbeatIntervalMs = Math.max(1, Math.min(heartbeatIntervalMs, mostMs));
  } else if (heartbeatIntervalMs * BEATS_A_SESSION_LEAST > sessionTimeoutMs) {
    throw new TypeError(
      `heartbeatIntervalMs ${heartbeatIntervalMs} is too long for sessionTimeoutMs ` +
        `${sessionTimeoutMs}: at most a third of it, for instance ` +
        `${Math.max(1, Math.floor(sessionTimeoutMs / 15))}`,
    );
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
