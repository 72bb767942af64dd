// The lease of a session: until when its holdings may be used.
//
// All times are of one clock that counts sleep. A holding may be used until 0.9 of the lease after
// the newest heartbeat was *sent* whose acknowledgement did not list it; that is compared at the
// point of use, so no late timer makes it valid for longer.

import type { Holding } from "../ledger.js";

/** One partition that the session has, until it is given back: also one that is lost. */
export class Held {
  state: "active" | "draining" | "lost" = "active";
  handoffId = 0n;
  isSuspended = false;
  isPaused = false;
  /** Its last renewal, once acknowledgements do not renew it any more. */
  frozenMs: number | undefined;
  drainByMs = Infinity;

  constructor(readonly holding: Holding) {}
}

export class Lease {
  /** 0: not told yet. */
  ms = 0;
  private renewedMs = -Infinity;
  private number = 0n;
  /** When heartbeats were sent that are not acknowledged. */
  private readonly sent = new Map<bigint, number>();
  /** When heartbeats were sent that asked for the whole, and have no answer. */
  private readonly asked = new Map<bigint, number>();

  /** The heartbeat to send now. It asks for the whole until that has come. */
  beat(asks: boolean, nowMs: number): { number: bigint; whole: boolean } {
    const whole = asks || this.isAsked;
    this.number += 1n;
    this.sent.set(this.number, nowMs);
    if (whole) this.asked.set(this.number, nowMs);
    return { number: this.number, whole };
  }

  get isAsked(): boolean {
    return this.asked.size > 0;
  }

  /** Another stream: the whole comes with its beginning. */
  forgetAsked(): void {
    this.asked.clear();
  }

  /** When it was asked what the whole answers now. */
  answered(number: bigint): number | undefined {
    const askedMs = this.asked.get(number);
    this.asked.clear();
    return askedMs;
  }

  /** Numbers count over the streams of a session, and begin anew with another one. */
  begin(leaseMs: number, isAnother: boolean): void {
    this.ms = leaseMs;
    if (isAnother) this.number = 0n;
  }

  /** When the acknowledged heartbeat was sent; undefined: a newer one was acknowledged before. */
  acknowledged(number: bigint): number | undefined {
    const sentMs = this.sent.get(number);
    for (const older of this.sent.keys()) if (older <= number) this.sent.delete(older);
    return sentMs;
  }

  /** False if it comes too late: what is held goes on only with a whole state. */
  renew(sentMs: number, nowMs: number): boolean {
    if (nowMs - this.renewedMs >= this.usableMs) return false;
    this.renewedMs = Math.max(this.renewedMs, sentMs);
    return true;
  }

  /** A whole state answers what was sent then: true if that is so new that it renews. */
  confirm(sentMs: number | undefined, nowMs: number): boolean {
    if (sentMs === undefined || nowMs - sentMs >= this.usableMs) return false;
    this.renewedMs = Math.max(this.renewedMs, sentMs);
    return true;
  }

  /** From now on acknowledgements do not renew it. */
  freeze(held: Held): void {
    held.frozenMs ??= this.renewedMs;
  }

  /** True while effects may leave the process. */
  isUsable(held: Held, nowMs: number): boolean {
    return nowMs < this.endsMs(held);
  }

  /** True while new work may be begun. */
  takesWork(held: Held, nowMs: number): boolean {
    return nowMs - this.renewedOf(held) < Math.floor((2 / 3) * this.ms);
  }

  endsMs(held: Held): number {
    return this.renewedOf(held) + this.usableMs;
  }

  private renewedOf(held: Held): number {
    return held.frozenMs ?? this.renewedMs;
  }

  private get usableMs(): number {
    return Math.floor(0.9 * this.ms);
  }
}
