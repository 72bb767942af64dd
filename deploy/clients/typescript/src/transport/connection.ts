// The connection of a member: one gRPC channel to its coordinator, over which calls are made. The
// machine decides when to look for the coordinator and when to hang up.

import {
  type CallOptions,
  type ChannelCredentials,
  type ClientDuplexStream,
  type ClientUnaryCall,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { ErrorCode } from "../generated/coordinator/v1/errors.js";
import {
  type FindCoordinatorResponse,
  GroupCoordinatorClient,
} from "../generated/coordinator/v1/group.js";
import {
  GroupSessionsClient,
  type SessionRequest,
  type SessionResponse,
} from "../generated/coordinator/v1/session.js";
import type { Call, Failure, Heard, Request, Result } from "../member/calls.js";
import { retryAfterMs } from "./retryInfo.js";
import type { Transport } from "./transport.js";
import * as wire from "./wire.js";

const CHANNEL_OPTIONS = {
  // A node that hangs is noticed while a join is parked, which may take minutes.
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // The leader is sent the metadata of all members.
  "grpc.max_receive_message_length": -1,
  "grpc.max_send_message_length": -1,
};

type Done<Response> = (error: ServiceError | null, response: Response) => void;

/** One method of the contract on one client. */
type Start<Response> = (
  client: GroupCoordinatorClient,
  metadata: Metadata,
  options: Partial<CallOptions>,
  done: Done<Response>,
) => ClientUnaryCall;

export class Connection implements Transport {
  private client: GroupCoordinatorClient | undefined;
  /** Shares the channel of `client`. */
  private sessions: GroupSessionsClient | undefined;
  private stream: ClientDuplexStream<SessionRequest, SessionResponse> | undefined;
  private readonly underWay = new Map<Call, (failure: Failure) => void>();

  constructor(private readonly credentials: ChannelCredentials) {}

  async carryOut(call: Call, hear: (heard: Heard) => void): Promise<Result> {
    const { request } = call;
    if (request.kind === "find") return this.find(call, request.address);
    const { client } = this;
    if (client === undefined) return { kind: "unreachable", detail: "the connection was closed" };
    switch (request.kind) {
      case "attach":
        return this.attach(call, client, request.said, hear);
      case "join": {
        const message = wire.encodeJoin(request);
        return this.call(call, client, (c, ...r) => c.joinGroup(message, ...r), wire.decodeJoined);
      }
      case "sync": {
        const message = wire.encodeSync(request);
        return this.call(call, client, (c, ...r) => c.syncGroup(message, ...r), wire.decodeSynced);
      }
      case "beat": {
        const message = wire.encodeBeat(request);
        return this.call(
          call,
          client,
          (c, ...r) => c.heartbeat(message, ...r),
          wire.decodeAcknowledged,
        );
      }
      case "leave": {
        const message = wire.encodeLeave(request);
        return this.call(
          call,
          client,
          (c, ...r) => c.leaveGroup(message, ...r),
          wire.decodeAcknowledged,
        );
      }
      case "commit": {
        const message = wire.encodeCommit(request);
        return this.call(
          call,
          client,
          (c, ...r) => c.offsetCommit(message, ...r),
          wire.decodeCommitted,
        );
      }
      case "fetch": {
        const message = wire.encodeFetch(request);
        return this.call(
          call,
          client,
          (c, ...r) => c.offsetFetch(message, ...r),
          wire.decodeFetched,
        );
      }
    }
  }

  say(said: SessionRequest): void {
    this.stream?.write(said);
  }

  cancel(call: Call): void {
    this.underWay.get(call)?.({ kind: "dropped", detail: "cancelled here" });
  }

  hangUp(): void {
    const { client, sessions } = this;
    this.client = this.sessions = undefined;
    for (const [call, end] of [...this.underWay]) {
      if (call.request.kind !== "find") end({ kind: "unreachable", detail: "hung up" });
    }
    client?.close();
    sessions?.close();
  }

  /** Ask one address, and connect to the coordinator that it names. */
  private async find(call: Call, address: string): Promise<Result> {
    const { groupId } = call.request as Extract<Request, { kind: "find" }>;
    const node = this.open(address);
    const found = await this.call(
      call,
      node,
      (client, ...rest) => client.findCoordinator({ groupId }, ...rest),
      (response: FindCoordinatorResponse): Result => {
        const { errorCode, errorMessage, host, port } = response;
        if (errorCode !== ErrorCode.NONE) {
          return { kind: "unreachable", detail: `${wire.codeName(errorCode)}: ${errorMessage}` };
        }
        return { kind: "found", address: host !== "" && port > 0 ? `${host}:${port}` : address };
      },
    );
    if (found.kind === "found" && found.address === address) this.client = node;
    else node.close();
    if (found.kind === "found") this.client ??= this.open(found.address);
    return found;
  }

  /** Open the stream of a session, and hear it to its end. */
  private attach(
    call: Call,
    client: GroupCoordinatorClient,
    said: SessionRequest,
    hear: (heard: Heard) => void,
  ): Promise<Result> {
    this.sessions ??= new GroupSessionsClient("", this.credentials, {
      channelOverride: client.getChannel(),
    });
    const stream = (this.stream = this.sessions.session());
    return new Promise((resolve) => {
      const end = (result: Result): void => {
        if (this.stream === stream) this.stream = undefined;
        if (this.underWay.delete(call)) resolve(result);
      };
      this.underWay.set(call, (failure) => {
        end(failure);
        stream.cancel();
      });
      stream.on("data", (heard: SessionResponse) => this.underWay.has(call) && hear(heard));
      stream.on("error", (error: ServiceError) => end(failureOf(error)));
      stream.on("end", () => end({ kind: "ended" }));
      stream.write(said);
    });
  }

  private open(address: string): GroupCoordinatorClient {
    return new GroupCoordinatorClient(address, this.credentials, CHANNEL_OPTIONS);
  }

  private call<Response>(
    call: Call,
    client: GroupCoordinatorClient,
    start: Start<Response>,
    decode: (response: Response) => Result,
  ): Promise<Result> {
    return new Promise((resolve) => {
      const end = (result: Result): void => {
        if (this.underWay.delete(call)) resolve(result);
      };
      this.underWay.set(call, (failure) => {
        end(failure);
        // The coordinator notices, and does not keep waiting for a member that has gone.
        running?.cancel();
      });
      let running: ClientUnaryCall | undefined;
      try {
        const { timeoutMs } = call;
        const options = timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs };
        running = start(client, new Metadata(), options, (error, response) => {
          end(error === null ? decoded(decode, response) : failureOf(error));
        });
      } catch (error) {
        end({ kind: "broken", error: error as Error });
      }
    });
  }
}

function decoded<Response>(decode: (response: Response) => Result, response: Response): Result {
  try {
    return decode(response);
  } catch (error) {
    return { kind: "broken", error: error as Error };
  }
}

const REFUSED: ReadonlySet<status> = new Set([
  status.INVALID_ARGUMENT,
  status.PERMISSION_DENIED,
  status.RESOURCE_EXHAUSTED,
  status.UNAUTHENTICATED,
]);

function failureOf(error: ServiceError): Failure {
  const detail = error.details || error.message;
  if (error.code === status.CANCELLED) return { kind: "dropped", detail };
  if (!REFUSED.has(error.code)) return { kind: "unreachable", detail };
  const afterMs =
    error.code === status.RESOURCE_EXHAUSTED ? retryAfterMs(error.metadata) : undefined;
  return afterMs === undefined
    ? { kind: "refused", detail, code: status[error.code] }
    : { kind: "no room", detail, afterMs };
}
