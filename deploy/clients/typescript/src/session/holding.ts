// What a session member holds, prepares for, and is told.

import type { SessionMember } from "./member.js";

/** One grant of one partition. Another grant of the same partition is another holding. */
export class Holding {
  state: "active" | "draining" | "lost" | "ended" = "active";
  handoffId = 0n;
  suspended = false;
  paused = false;
  /** Its last renewal, once acknowledgements do not renew it any more. */
  frozen: number | undefined;
  drainBy = Infinity;

  constructor(
    private readonly member: SessionMember,
    readonly topic: string,
    readonly partition: number,
    readonly token: bigint,
  ) {}

  /** True while effects may leave the process: one comparison, made now. */
  get valid(): boolean {
    if (this.state === "lost" || this.state === "ended" || this.suspended) return false;
    return this.member.age(this) < 0.9 * this.member.leaseMs;
  }

  /** True while new work may be begun. */
  get takesWork(): boolean {
    if (this.state !== "active" || this.paused || !this.valid) return false;
    return this.member.age(this) < (2 / 3) * this.member.leaseMs;
  }

  /** Store the offset of the next row; rejects if that is not stored. */
  commit(offset: bigint): Promise<void> {
    return this.member.commit(this, offset);
  }

  /** Nothing of it runs any more, and its last commit was answered. */
  released(position?: bigint): void {
    this.member.giveUp(this, position);
  }

  /** Give it up: another member gets it, and this one not for a while. */
  refuse(reason: string): void {
    this.member.giveUp(this, undefined, reason);
  }
}

/** A partition that will be this member's. */
export class Preparation {
  isReady = false;

  constructor(
    private readonly member: SessionMember,
    readonly topic: string,
    readonly partition: number,
    readonly handoffId: bigint,
    readonly offset: bigint,
    /** Mode copy: where the holder before has stopped; -1: unknown. */
    readonly position: bigint,
  ) {}

  ready(): void {
    this.isReady = true;
    this.member.say(this);
  }

  refuse(reason: string): void {
    this.member.say(this, reason);
  }
}

export type Change =
  | { kind: "granted"; holding: Holding; offset: bigint }
  /** Finish, commit, and call `released`, in `remainingMs`; then it is lost. */
  | { kind: "draining"; holding: Holding; remainingMs: number }
  /** Stop at once, without a commit, and call `released`. */
  | { kind: "lost"; holding: Holding; reason: string }
  /** No effect may leave the process until it is resumed, or lost. */
  | { kind: "suspended" | "resumed"; holding: Holding }
  /** Prepare, and call `ready`. */
  | { kind: "warming" | "dropped"; preparation: Preparation }
  | { kind: "stopping"; reason: string };
