// The seam between a member and its network: tests put a coordinator in memory behind it.

import type { SessionRequest } from "../generated/coordinator/v1/session.js";
import type { Call, Heard, Result } from "../member/calls.js";

export interface Transport {
  /**
   * Make one attempt; never rejects. A `find` goes to the address that it names and connects to
   * the coordinator found; every other request uses the connection there is.
   *
   * @param hear told what is said on a stream while it lasts.
   */
  carryOut(call: Call, hear: (heard: Heard) => void): Promise<Result>;
  /** Say something on the stream; nothing if there is none. */
  say(said: SessionRequest): void;
  /** Its answer is not needed any more. */
  cancel(call: Call): void;
  /** Close the connection; calls on it end as unreachable. */
  hangUp(): void;
}
