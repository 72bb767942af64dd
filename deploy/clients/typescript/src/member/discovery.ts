// Discovery: asks one bootstrap address after the other for the group's coordinator, and knows
// since when nobody has answered.

import type { Failure, Request, Result } from "./calls.js";

const FIRST_SAID_MS = 1_000;
const SAID_MOST_MS = 60_000;
/** A connection that lasts longer without an answer had a parked call; others are given up sooner. */
const PARKED_MS = 20_000;

export class Discovery {
  /** Numbers the connections; each coordinator found adds 1. */
  connection = 0;
  isConnected = false;
  isLooking = false;
  private readonly addresses: string[];
  private failed = 0;
  private connectedMs: number | undefined;
  private readonly silence = new Silence();

  constructor(
    private readonly groupId: string,
    bootstrap: readonly string[],
  ) {
    this.addresses = [...bootstrap];
  }

  /** Ask this address first: the coordinator that moved away has named it. */
  learn(address: string): void {
    const others = this.addresses.filter((other) => other !== address);
    this.addresses.splice(0, this.addresses.length, address, ...others);
    this.failed = 0;
  }

  look(nowMs: number): Request {
    this.isLooking = true;
    // A call was parked on the connection before: the silence before that is over.
    if (this.connectedMs !== undefined && nowMs - this.connectedMs >= PARKED_MS) {
      this.silence.end(nowMs);
    }
    this.connectedMs = undefined;
    this.silence.begin(nowMs, `${this.addresses[0]}: no answer yet`);
    return { kind: "find", groupId: this.groupId, address: this.addresses[0]! };
  }

  /** Take in an answer; returns a failure once every address has failed. */
  handle(result: Result, nowMs: number): Failure | undefined {
    this.isLooking = false;
    if (result.kind === "found") {
      this.connection += 1;
      this.isConnected = true;
      this.connectedMs = nowMs;
      this.failed = 0;
      return undefined;
    }
    // One that fails is asked last from now on: it may hang until the time-out.
    const address = this.addresses.shift()!;
    this.addresses.push(address);
    this.silence.detail = `${address}: ${"detail" in result ? result.detail : result.kind}`;
    if (++this.failed < this.addresses.length) return undefined;
    this.failed = 0;
    return result as Failure;
  }

  /** The coordinator has answered; returns how long nobody had, if that was said. */
  answered(nowMs: number): number | undefined {
    return this.silence.end(nowMs);
  }

  /** The warning that is due; undefined: none. */
  warning(nowMs: number): string | undefined {
    return this.isConnected ? undefined : this.silence.warning(nowMs);
  }

  nextDeadline(): number | undefined {
    return this.isConnected ? undefined : this.silence.nextMs;
  }
}

/** Since when nobody answers: said after a second, and again with growing intervals. */
class Silence {
  detail = "";
  nextMs: number | undefined;
  private sinceMs = 0;
  private gapMs = FIRST_SAID_MS;
  private isSaid = false;

  begin(nowMs: number, detail: string): void {
    if (this.nextMs !== undefined) return;
    this.sinceMs = nowMs;
    this.nextMs = nowMs + FIRST_SAID_MS;
    this.gapMs = FIRST_SAID_MS;
    this.isSaid = false;
    this.detail = detail;
  }

  warning(nowMs: number): string | undefined {
    if (this.nextMs === undefined || nowMs < this.nextMs) return undefined;
    this.gapMs = Math.min(SAID_MOST_MS, this.gapMs * 2);
    this.nextMs = nowMs + this.gapMs;
    this.isSaid = true;
    const seconds = ((nowMs - this.sinceMs) / 1000).toFixed(1);
    return `coordinator unreachable for ${seconds} s (${this.detail}); still trying`;
  }

  end(nowMs: number): number | undefined {
    const wasSaid = this.nextMs !== undefined && this.isSaid;
    this.nextMs = undefined;
    return wasSaid ? nowMs - this.sinceMs : undefined;
  }
}
