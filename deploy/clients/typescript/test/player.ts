// Plays one script with one member: hands it answers and time, and checks what it sends.

import assert from "node:assert/strict";
import type { AssignorName } from "../src/assignors/index.js";
import {
  decodeAssignment,
  decodeSubscription,
  encodeAssignment,
  encodeSubscription,
} from "../src/assignors/consumerProtocol.js";
import { CoordinatorError } from "../src/errors.js";
import type { Action, Call, CommitEntry, Failure, Request, Result } from "../src/member/calls.js";
import type { MemberEvent } from "../src/member/events.js";
import type { Holding } from "../src/member/ledger.js";
import { Machine } from "../src/member/machine.js";
import type { CommitOperation } from "../src/member/operations.js";
import { sorted, type TopicPartition } from "../src/partitions.js";
import type { Step } from "./script.js";

const TURNS_MAX = 10_000;
const TAKES_ACTIONS = ["sends", "cancels", "hangs-up"];
/** The words of scripts for events that are called otherwise here. */
const KINDS: Readonly<Record<string, string>> = { assigned: "granted" };

type Keys = Step["keys"];

export class Player {
  private nowMs = 0;
  private machine!: Machine;
  private actions: Action[] = [];
  private out: Call[] = [];
  private events: MemberEvent[] = [];
  /** Those that the owner was told are being revoked. */
  private readonly told: Holding[] = [];
  private readonly commits = new Map<string, CommitOperation | CoordinatorError>();
  private readonly holdings = new Map<string, Holding>();
  private readonly words: Record<string, (plain: string, keys: Keys) => void> = {
    member: (_, keys) => this.member(keys),
    sends: (kind, keys) => this.sends(kind, keys),
    cancels: (kind) => assert.equal(told(this.actions.shift()), `cancels ${kind}`),
    "hangs-up": () => assert.equal(told(this.actions.shift()), "hangs up"),
    answers: (kind, keys) => {
      const call = this.oldest(kind);
      this.hear(call, reply(kind, call.request, { protocol: this.assignor, ...keys }));
    },
    fails: (kind, keys) => this.hear(this.oldest(kind), failure(keys)),
    waits: (ms, keys) => this.waits(Number(ms), keys),
    sleeps: (ms) => (this.nowMs += Number(ms)),
    closed: () => assert.ok(this.machine.isClosed),
    stopped: (_, keys) => {
      const { phase, failure } = this.machine.state;
      assert.equal(phase, "stopped");
      assert.equal((failure as CoordinatorError).code, keys["error"]);
    },
    ends: () => {},
    polls: () => {
      const finished = this.told.splice(0);
      this.machine.giveBack(finished, { reason: "it was given back" }, this.nowMs);
      this.looks();
    },
    looks: () => this.looks(),
    hears: (plain, keys) => this.hears(plain, keys),
    "gives-back": (plain) => {
      const { ledger } = this.machine.state;
      const given = partitions(plain).map((partition) => ledger.of(partition));
      this.machine.giveBack(given, { reason: "it was given back" }, this.nowMs);
      this.take();
    },
    has: (plain) => assert.equal(numbers(this.machine.assignment), plain),
    keeps: (name, keys) => {
      const partition = { topic: "t", partition: Number(keys["partition"]) };
      this.holdings.set(name, this.machine.state.ledger.of(partition));
    },
    commits: (name, keys) => this.commit(name, keys),
    stored: (name) => {
      const found = this.operation(name);
      assert.ok(found.isDone, "it is pending");
      assert.equal(found.error, undefined);
    },
    pending: (name) => assert.ok(!this.operation(name).isDone, "it has ended"),
    refused: (name, keys) => this.refused(name, keys),
    closes: (_, keys) => {
      this.machine.close(keys["because"] ?? "", this.nowMs);
      this.take();
    },
  };

  constructor(private readonly assignor: string) {}

  step(word: string, plain = "", keys: Keys = {}): void {
    if (!TAKES_ACTIONS.includes(word)) assert.deepEqual(this.actions.map(told), [], "unexpected");
    if (word !== "hears") assert.deepEqual(this.events, [], "not said");
    const play = this.words[word];
    assert.ok(play, `there is no step ${word}`);
    play(plain, keys);
  }

  // --- The member ---

  private member(keys: Keys): void {
    this.machine = new Machine(
      {
        groupId: "g",
        topics: new Map([["t", Number(keys["partitions"] ?? 2)]]),
        assignors: (keys["assignors"] ?? this.assignor).split(",") as AssignorName[],
        clientId: "",
        instanceId: keys["instance"],
        sessionTimeoutMs: Number(keys["session"] ?? 4_000),
        rebalanceTimeoutMs: Number(keys["rebalance"] ?? 6_000),
        heartbeatIntervalMs: Number(keys["beat"] ?? 1_000),
        protocol: "classic",
        incarnation: { id: Buffer.alloc(16), startedAtMs: 0 },
      },
      (keys["bootstrap"] ?? "a:1,b:2").split(","),
      () => 0.5,
    );
    this.machine.start(0);
    this.take();
  }

  private sends(kind: string, keys: Keys): void {
    const action = this.actions.shift();
    assert.equal(told(action), `sends ${kind}`);
    const fields = requestFields((action as Call).request);
    for (const [key, value] of Object.entries(keys)) assert.equal(fields[key], value, key);
  }

  private waits(ms: number, keys: Keys): void {
    const untilMs = this.nowMs + ms;
    for (let turns = 0; turns < TURNS_MAX; turns++) {
      if (keys["beats"] === "answered") this.answerBeats();
      if (this.nowMs === untilMs) return;
      this.nowMs = Math.min(untilMs, this.machine.nextDeadline() ?? untilMs);
      this.take();
    }
    assert.fail("its deadlines never end");
  }

  private answerBeats(): void {
    for (const call of this.out.filter(({ request }) => request.kind === "beat")) {
      this.actions = this.actions.filter((action) => action !== call);
      this.hear(call, reply("beat", call.request, {}));
    }
  }

  // --- Its owner ---

  private looks(): void {
    this.events = this.machine.handOut(this.nowMs);
    for (const event of this.events)
      if (event.kind === "revoking") this.told.push(...event.holdings);
    this.take();
  }

  private hears(plain: string, keys: Keys): void {
    const event = this.events.shift();
    assert.ok(event, `it hears nothing, instead of ${plain}`);
    const [kind = "", ...rest] = plain.split(" ");
    assert.equal(event.kind, KINDS[kind] ?? kind);
    if ("holdings" in event) assert.equal(numbers(event.holdings), rest.join(" "));
    if (event.kind === "granted") {
      for (const { generation } of event.holdings)
        assert.equal(`${generation}`, keys["generation"]);
    }
    if (event.kind === "revoking") assert.equal(`${event.deadlineMs! - this.nowMs}`, keys["in"]);
    if ("reason" in event) assert.ok(event.reason.includes(keys["because"] ?? "?"), event.reason);
  }

  private commit(name: string, keys: Keys): void {
    const expected = offsets(keys["expected"] ?? "-");
    const entries: CommitEntry[] = [...offsets(keys["offsets"] ?? "-")].map(
      ([partition, offset]) => ({
        topic: "t",
        partition,
        offset,
        expected: expected.get(partition),
      }),
    );
    const shown = keys["with"]?.split(",").map((one) => this.holdings.get(one)!);
    try {
      this.commits.set(name, this.machine.commit({ entries }, shown, this.nowMs));
    } catch (error) {
      if (!(error instanceof CoordinatorError)) throw error;
      this.commits.set(name, error);
    }
    this.take();
  }

  private operation(name: string): CommitOperation {
    const found = this.commits.get(name);
    assert.ok(found && "isDone" in found, `${found}`);
    return found;
  }

  private refused(name: string, keys: Keys): void {
    const found = this.commits.get(name);
    const error = found && "isDone" in found ? found.error : found;
    assert.equal(error?.name, keys["error"], `${error}`);
    assert.ok(error?.message.includes(keys["because"] ?? "?"), error?.message);
  }

  // --- Inside ---

  /** Take all actions that the machine has. */
  private take(): void {
    for (let action; (action = this.machine.nextAction(this.nowMs)) !== undefined;) {
      const taken = action;
      if (taken.kind === "warn") continue;
      this.actions.push(taken);
      if (taken.kind === "call") this.out.push(taken);
      else if (taken.kind === "cancel") this.out = this.out.filter((call) => call !== taken.call);
      else {
        const lost = this.out;
        this.out = [];
        for (const call of lost) this.machine.handle(call, gone("hung up"), this.nowMs);
      }
    }
  }

  private hear(call: Call, result: Result): void {
    this.out = this.out.filter((other) => other !== call);
    this.machine.handle(call, result, this.nowMs);
    this.take();
  }

  private oldest(kind: string): Call {
    const found = this.out.find(({ request }) => request.kind === kind);
    assert.ok(found, `no ${kind} is out`);
    return found;
  }
}

function told(action: Action | undefined): string {
  if (action?.kind === "call") return `sends ${action.request.kind}`;
  if (action?.kind === "cancel") return `cancels ${action.call.request.kind}`;
  return action === undefined ? "nothing" : "hangs up";
}

function partitions(text: string): TopicPartition[] {
  if (text === "-") return [];
  return text.split(",").map((one) => ({ topic: "t", partition: Number(one) }));
}

function numbers(found: Iterable<TopicPartition>): string {
  return (
    sorted(found)
      .map(({ partition }) => partition)
      .join(",") || "-"
  );
}

function offsets(text: string): Map<number, bigint> {
  const pairs = text === "-" ? [] : text.split(",").map((pair) => pair.split(":"));
  return new Map(pairs.map(([number, offset]) => [Number(number), BigInt(offset!)]));
}

/** What a script may say of a request. */
function requestFields(request: Request): Record<string, string | undefined> {
  if (request.kind === "find") return { address: request.address };
  if (request.kind === "fetch" || request.kind === "attach") return {};
  const { memberId, generation, instanceId } = request.member;
  const fields = { member: memberId, generation: `${generation}` };
  switch (request.kind) {
    case "join":
      return {
        ...fields,
        owned: numbers(decodeSubscription(request.protocols[0]!.metadata).owned),
        assignors: request.protocols.map(({ name }) => name).join(","),
        instance: instanceId ?? "",
      };
    case "sync": {
      const shares = request.assignments.map(
        ({ memberId: id, assignment }) => `${id}:${assigned(assignment)}`,
      );
      return { ...fields, assignments: shares.sort().join(";") || "-" };
    }
    case "commit": {
      const entries = sorted(request.commit.entries);
      const known = entries.filter(({ expected }) => expected !== undefined);
      const text = (pairs: string[]): string => pairs.join(",") || "-";
      return {
        ...fields,
        offsets: text(entries.map(({ partition, offset }) => `${partition}:${offset}`)),
        expected: text(known.map(({ partition, expected }) => `${partition}:${expected}`)),
      };
    }
    default:
      return fields;
  }
}

function assigned(bytes: Buffer): string {
  const { partitions: given, userData } = decodeAssignment(bytes);
  return numbers(given) + (userData?.toString() === "gives back" ? "!" : "");
}

/** The answer that a script gives. */
function reply(kind: string, request: Request, keys: Keys): Result {
  const code = keys["error"] ?? "NONE";
  switch (kind) {
    case "find":
      return { kind: "found", address: (request as { address: string }).address };
    case "join":
      return {
        kind: "joined",
        code,
        message: code,
        memberId: keys["member"] ?? "",
        generation: Number(keys["generation"] ?? -1),
        leader: keys["leader"] ?? "",
        protocolName: keys["protocol"] ?? "",
        members: members(keys["members"]),
        skipAssignment: false,
      };
    case "sync": {
      const said = keys["partitions"] ?? "-";
      const userData = said.endsWith("!") ? Buffer.from("gives back") : undefined;
      const given = partitions(said.replace("!", ""));
      const assignment = encodeAssignment({ partitions: given, userData });
      return { kind: "synced", code, message: code, assignment };
    }
    case "commit": {
      const stored = [...offsets(keys["stored"] ?? "-")].map(
        ([partition, offset]): [string, bigint] => [`t-${partition}`, offset],
      );
      const codes = [stored.length > 0 ? "OFFSET_MISMATCH" : code];
      return { kind: "committed", codes, stored: new Map(stored), message: code };
    }
    default:
      return { kind: "acknowledged", code, message: code };
  }
}

function members(text: string | undefined) {
  return (text?.split(";") ?? []).map((member) => {
    const [memberId = "", owned = ""] = member.split(":");
    const [held = "-", generation = "-1"] = owned.split("@");
    const subscription = {
      topics: ["t"],
      owned: partitions(held),
      generation: Number(generation),
    };
    return { memberId, instanceId: undefined, metadata: encodeSubscription(subscription) };
  });
}

function gone(detail: string): Failure {
  return { kind: "unreachable", detail };
}

function failure(keys: Keys): Failure {
  switch (keys["how"]) {
    case "dropped":
      return { kind: "dropped", detail: "dropped" };
    case "no-room":
      return { kind: "no room", detail: "full", afterMs: Number(keys["after"]) };
    case "refused":
      return { kind: "refused", detail: "refused", code: keys["code"] ?? "" };
    default:
      assert.equal(keys["how"], "unreachable");
      return gone("gone");
  }
}
