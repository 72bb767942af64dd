// The way to a group's coordinator: found through any node, found anew when it has moved or gone.

import {
  type CallOptions,
  type ClientUnaryCall,
  credentials,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { setTimeout as sleep } from "node:timers/promises";
import { ErrorCode } from "./generated/coordinator/v1/errors.js";
import {
  type FindCoordinatorResponse,
  GroupCoordinatorClient,
} from "./generated/coordinator/v1/group.js";

/** One call on whichever client is at hand, for instance `(c, ...rest) => c.heartbeat(request, ...rest)`. */
export type Call<Response> = (
  client: GroupCoordinatorClient,
  metadata: Metadata,
  options: Partial<CallOptions>,
  done: (error: ServiceError | null, response: Response) => void,
) => ClientUnaryCall;

/** The group says no; `code` says why, and the message what to do. */
export class Refused extends Error {
  constructor(
    readonly code: ErrorCode,
    message: string,
  ) {
    super(`${ErrorCode[code] ?? code}: ${message}`);
  }
}

/** Codes that ask to look the coordinator up again. */
export const ELSEWHERE: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.NOT_COORDINATOR,
  ErrorCode.COORDINATOR_NOT_AVAILABLE,
]);

const FIND_TIMEOUT_MS = 1_000;
const PAUSE_FIRST_MS = 100;
const PAUSE_MOST_MS = 1_000; // Several attempts must fit into a session.

const CHANNEL_OPTIONS = {
  // A node that hangs is noticed while a join is parked, which may take minutes.
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // The leader is sent the metadata of all members.
  "grpc.max_receive_message_length": -1,
};

export class Coordinator {
  private client: Promise<GroupCoordinatorClient> | undefined;

  constructor(
    private readonly bootstrap: readonly string[],
    private readonly groupId: string,
  ) {}

  /**
   * One attempt. What gRPC says by its status is about the way there, so the next attempt looks
   * for the coordinator again; what the group says is in the response, for the caller to judge.
   *
   * @throws ServiceError as gRPC says, CANCELLED if `signal` was aborted; Refused if nobody
   *   coordinates the group.
   */
  async call<Response>(
    start: Call<Response>,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<Response> {
    const client = (this.client ??= this.find()); // One search for all calls that wait for it.
    try {
      return await unary(await client, start, timeoutMs, signal);
    } catch (error) {
      if (!isMalformedCall(error) && client === this.client) this.hangUp();
      throw error;
    }
  }

  /** Forget the coordinator: the next call looks for it. */
  hangUp(): void {
    const client = this.client;
    this.client = undefined;
    client?.then(
      (open) => open.close(),
      () => {}, // There never was one.
    );
  }

  private async find(): Promise<GroupCoordinatorClient> {
    let failure: unknown;
    for (const address of this.bootstrap) {
      const node = connect(address);
      try {
        const found = await unary<FindCoordinatorResponse>(
          node,
          (client, ...rest) => client.findCoordinator({ groupId: this.groupId }, ...rest),
          FIND_TIMEOUT_MS,
        );
        if (found.errorCode === ErrorCode.NONE) return connect(`${found.host}:${found.port}`);
        failure = new Refused(found.errorCode, found.errorMessage);
      } catch (error) {
        failure = error;
      } finally {
        node.close();
      }
    }
    throw failure;
  }
}

/**
 * Longer with every attempt, and by chance: members that lost a node do not come back at once.
 * Ends early when `signal` is aborted.
 */
export async function pause(attempt: number, signal?: AbortSignal): Promise<void> {
  const limitMs = Math.min(PAUSE_MOST_MS, PAUSE_FIRST_MS * 2 ** attempt);
  await sleep(limitMs * Math.random(), undefined, { signal }).catch((error: unknown) => {
    if (!signal?.aborted) throw error;
  });
}

/** True for what gRPC says by its status, and not the group in its answer. */
export function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}

/** True where asking again would not help: the request itself is wrong. */
export function isMalformedCall(error: unknown): boolean {
  return isServiceError(error) && error.code === status.INVALID_ARGUMENT;
}

function connect(address: string): GroupCoordinatorClient {
  return new GroupCoordinatorClient(address, credentials.createInsecure(), CHANNEL_OPTIONS);
}

function unary<Response>(
  client: GroupCoordinatorClient,
  start: Call<Response>,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    const options = { deadline: Date.now() + timeoutMs };
    const call = start(client, new Metadata(), options, (error, response) => {
      signal?.removeEventListener("abort", cancel);
      if (error === null) resolve(response);
      else reject(error);
    });
    // The coordinator notices, and does not keep waiting for a member that has gone.
    const cancel = (): void => call.cancel();
    signal?.addEventListener("abort", cancel);
    if (signal?.aborted) cancel();
  });
}
