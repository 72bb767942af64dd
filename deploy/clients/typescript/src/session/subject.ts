// A session member that the conformance kit can test: it says what it hears as lines of JSON, and
// does what it is told by lines on its standard input.

import { createInterface } from "node:readline";
import { SessionMember } from "./member.js";
import type { Change, Holding, Preparation } from "./holding.js";

const told = (name: string): string => process.env[`CONFORMANCE_${name}`] ?? "";
const topics = { [told("TOPIC")]: Number(told("PARTITIONS")) };
const name = told("MEMBER_NAME");
const member = new SessionMember(told("BOOTSTRAP"), told("GROUP"), topics, { name });
const holdings = new Map<number, Holding>();
const preparations = new Map<number, Preparation>();

function say(event: string, details: object = {}): void {
  // Tokens are below 2^53, so a number of JSON holds them.
  const plain = (_: string, value: unknown) => (typeof value === "bigint" ? Number(value) : value);
  process.stdout.write(`${JSON.stringify({ event, ...details }, plain)}\n`);
}

createInterface({ input: process.stdin })
  .on("line", (line) => void follow(JSON.parse(line)))
  .on("close", () => process.exit()); // The kit has ended.

interface Command {
  do: string;
  partition?: number;
  position?: number;
  offset?: number;
  reason?: string;
  kind?: "NOW" | "DRAIN" | "RETURN";
  within_ms?: number;
}

async function follow(command: Command): Promise<void> {
  const { do: what, partition = 0 } = command;
  const holding = holdings.get(partition);
  const { valid = false, takesWork = false } = holding ?? {};
  if (what === "valid") say("valid", { partition, valid, takes_work: takesWork });
  if (what === "ready") preparations.get(partition)?.ready();
  if (what === "release") holding?.released(BigInt(command.position ?? -1));
  if (what === "refuse") (holding ?? preparations.get(partition))?.refuse(command.reason ?? "");
  if (what === "leave") member.leave(command.kind ?? "NOW", command.within_ms ?? 0);
  if (what === "commit") {
    if (holding === undefined) return say("committed", { partition, error: "NotHeld" });
    const stored = holding.commit(BigInt(command.offset ?? 0));
    const error = await stored.then(() => "NONE", (reason: Error) => reason.name);
    say("committed", { partition, error });
  }
}

function hear(change: Change): void {
  if ("holding" in change) {
    const { kind, holding } = change;
    const { partition, token } = holding;
    if (kind === "granted") holdings.set(partition, holding);
    say(kind, { partition, token, ...(kind === "granted" && { offset: change.offset }) });
    if (kind === "lost") holding.released();
  } else if ("preparation" in change) {
    const { kind, preparation } = change;
    const { partition, position } = preparation;
    if (kind === "warming") preparations.set(partition, preparation);
    else preparations.delete(partition);
    say(kind === "warming" ? kind : "lost", { partition, position });
  }
}

for await (const change of member.changes()) {
  if (change.kind === "stopping") say("stopping", { reason: change.reason });
  else hear(change);
}
process.exit();
