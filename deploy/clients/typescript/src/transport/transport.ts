// The seam between a member and its network: tests put a coordinator in memory behind it.

import type { Call, Result } from "../machine/calls.js";

export interface Transport {
  /**
   * Make one attempt; never rejects. A `find` goes to the address that it names and connects to
   * the coordinator found; every other request uses the connection there is.
   */
  carryOut(call: Call): Promise<Result>;
  /** Its answer is not needed any more. */
  cancel(call: Call): void;
  /** Close the connection; calls on it end as unreachable. */
  hangUp(): void;
}
