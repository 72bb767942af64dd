// Time and timers, which tests replace.

export interface Clock {
  /** Milliseconds since the epoch; never goes back. */
  now(): number;
  /** Run `work` later; the result cancels it. */
  timer(ms: number, work: () => void): () => void;
}

export const systemClock: Clock = {
  now: () => Math.floor(performance.timeOrigin + performance.now()),
  timer: (ms, work) => {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
};

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
