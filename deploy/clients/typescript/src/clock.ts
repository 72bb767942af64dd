// Time and timers, which tests replace.

import { readFileSync } from "node:fs";

export interface Clock {
  /** Milliseconds since the epoch; never goes back, and counts while the machine sleeps. */
  now(): number;
  /** Run `work` later; the result cancels it. */
  timer(ms: number, work: () => void): () => void;
}

const bootOffset = readBootOffset();

export const systemClock: Clock = {
  // CLOCK_MONOTONIC, which Node reads, stands still while a machine sleeps: a lease would not age.
  // Where there is a /proc/uptime (CLOCK_BOOTTIME, to 10 ms), the time slept is added.
  now: () => {
    const slept = readBootOffset() - bootOffset;
    return Math.floor(performance.timeOrigin + performance.now() + (slept > 100 ? slept : 0));
  },
  timer: (ms, work) => {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
};

function readBootOffset(): number {
  try {
    return Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]) * 1000 - performance.now();
  } catch {
    return 0;
  }
}

/** Resolves after a time, or as soon as `signal` is aborted. */
export function sleep(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = (): void => {
      cancel();
      signal.removeEventListener("abort", end);
      resolve();
    };
    const cancel = clock.timer(ms, end);
    signal.addEventListener("abort", end);
  });
}

/** Resolves as soon as `signal` is aborted. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
