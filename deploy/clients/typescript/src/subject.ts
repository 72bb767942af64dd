// A session member that the conformance kit can test: it says what it hears as lines of JSON, and
// does what it is told by lines on its standard input.

import { createInterface } from "node:readline";
import { type Holding, Member, type MemberEvent, StaleMember, stderrLogger } from "./index.js";

const told = (name: string): string => process.env[`CONFORMANCE_${name}`] ?? "";
const member = new Member(told("BOOTSTRAP"), told("GROUP"), {
  protocol: "session",
  topics: { [told("TOPIC")]: Number(told("PARTITIONS")) },
  memberName: told("MEMBER_NAME"),
  logger: stderrLogger("silent"),
});
/** Those granted, and those to prepare for. */
const holdings = new Map<number, Holding>();

function say(event: string, details: object = {}): void {
  process.stdout.write(`${JSON.stringify({ event, ...details })}\n`);
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
  const { do: what, partition = 0, within_ms: withinMs = 0 } = command;
  const found = holdings.get(partition);
  const all = found === undefined ? [] : [found];
  if (what === "valid") {
    const valid = all.some((one) => member.isValid(one));
    say("valid", { partition, valid, takes_work: all.some((one) => member.takesWork(one)) });
  }
  if (what === "ready") member.ready(all);
  if (what === "release") member.giveBack(all, { position: command.position ?? -1 });
  if (what === "refuse") member.refuse(all, command.reason ?? "");
  if (what === "leave" && command.kind === "DRAIN") member.drain(withinMs);
  else if (what === "leave") {
    await member.close("told to", command.kind === "RETURN" ? withinMs : undefined);
  }
  if (what === "commit") say("committed", { partition, error: await commit(all, command) });
}

async function commit([holding]: Holding[], { offset = 0 }: Command): Promise<string> {
  try {
    if (holding === undefined) throw new StaleMember("it is not held");
    await member.commit([{ holding, offset }]);
    return "NONE";
  } catch (error) {
    return (error as Error).name;
  }
}

function hear(event: Exclude<MemberEvent, { kind: "stopping" }>, holding: Holding): void {
  const { partition, token, offset, position } = holding;
  switch (event.kind) {
    case "granted":
      holdings.set(partition, holding);
      return say("granted", { partition, token, offset: Number(offset) });
    case "warming":
      holdings.set(partition, holding);
      return say("warming", { partition, position: Number(position ?? -1) });
    case "revoking":
      return say("draining", { partition, token });
    case "lost":
      say("lost", { partition, token });
      return member.giveBack([holding]);
    default:
      return say(event.kind, { partition, token });
  }
}

for await (const event of member.events()) {
  if (event.kind === "stopping") say("stopping", { reason: event.reason });
  else for (const holding of event.holdings) hear(event, holding);
}
await member.close();
process.exit();
