// The clock of leases: monotonic milliseconds that count the time for which the machine sleeps.

import { readFileSync } from "node:fs";

const offset = bootOffset();

/**
 * CLOCK_MONOTONIC, which Node reads, stands still while a machine sleeps: a lease would not age.
 * Where there is a /proc/uptime (CLOCK_BOOTTIME, to 10 ms), the time slept is added.
 */
export function now(): number {
  const slept = bootOffset() - offset;
  return performance.now() + (slept > 100 ? slept : 0);
}

function bootOffset(): number {
  try {
    return Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]) * 1000 - performance.now();
  } catch {
    return 0;
  }
}
