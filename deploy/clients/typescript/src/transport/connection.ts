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
import { GroupCoordinatorClient } from "../generated/coordinator/v1/group.js";
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
type Rest = [metadata: Metadata, options: Partial<CallOptions>];

/** Make one call of the contract on a client. */
type Start = (
  client: GroupCoordinatorClient,
  request: Request,
  rest: Rest,
  done: (error: ServiceError | null, decode: () => Result) => void,
) => ClientUnaryCall;

function unary<Kind extends Request["kind"], Sent, Response>(
  encode: (request: Extract<Request, { kind: Kind }>) => Sent,
  decode: (response: Response) => Result,
  method: (
    client: GroupCoordinatorClient,
    sent: Sent,
    ...rest: [...Rest, Done<Response>]
  ) => ClientUnaryCall,
): Start {
  return (client, request, rest, done) =>
    method(
      client,
      encode(request as Extract<Request, { kind: Kind }>),
      ...rest,
      (error, response) => done(error, () => decode(response)),
    );
}

const CALLS: Readonly<Record<Exclude<Request["kind"], "attach">, Start>> = {
  find: unary(wire.encodeFind, wire.decodeFound, (c, ...r) => c.findCoordinator(...r)),
  join: unary(wire.encodeJoin, wire.decodeJoined, (c, ...r) => c.joinGroup(...r)),
  sync: unary(wire.encodeSync, wire.decodeSynced, (c, ...r) => c.syncGroup(...r)),
  beat: unary(wire.encodeBeat, wire.decodeAcknowledged, (c, ...r) => c.heartbeat(...r)),
  leave: unary(wire.encodeLeave, wire.decodeAcknowledged, (c, ...r) => c.leaveGroup(...r)),
  commit: unary(wire.encodeCommit, wire.decodeCommitted, (c, ...r) => c.offsetCommit(...r)),
  fetch: unary(wire.encodeFetch, wire.decodeFetched, (c, ...r) => c.offsetFetch(...r)),
};

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
    if (request.kind === "attach") return this.attach(call, client, request.said, hear);
    return this.call(call, client, CALLS[request.kind]);
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
    const node = this.open(address);
    const result = await this.call(call, node, CALLS.find);
    if (result.kind !== "found") {
      node.close();
      return result;
    }
    // A coordinator that names no address of its own is at the one that was asked.
    const found = result.address || address;
    if (found !== address) node.close();
    this.client = found === address ? node : this.open(found);
    return { kind: "found", address: found };
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

  private call(call: Call, client: GroupCoordinatorClient, start: Start): Promise<Result> {
    return new Promise((resolve) => {
      const end = (result: Result): void => {
        if (this.underWay.delete(call)) resolve(result);
      };
      const broken = (error: unknown): void => end({ kind: "broken", error: error as Error });
      let running: ClientUnaryCall | undefined;
      this.underWay.set(call, (failure) => {
        end(failure);
        // The coordinator notices, and does not keep waiting for a member that has gone.
        running?.cancel();
      });
      try {
        const { request, timeoutMs } = call;
        const options = timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs };
        running = start(client, request, [new Metadata(), options], (error, decode) => {
          if (error !== null) return end(failureOf(error));
          try {
            end(decode());
          } catch (problem) {
            broken(problem);
          }
        });
      } catch (problem) {
        broken(problem);
      }
    });
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
