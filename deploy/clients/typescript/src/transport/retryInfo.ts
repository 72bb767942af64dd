// When a coordinator that has no room expects to have some: google.rpc.RetryInfo in the details of
// google.rpc.Status, as gRPC sends them. Three small messages, read by hand.

import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import type { Metadata } from "@grpc/grpc-js";

const RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo";

/** Milliseconds; undefined if the coordinator does not say. */
export function retryAfterMs(metadata: Metadata): number | undefined {
  for (const bytes of metadata.get("grpc-status-details-bin")) {
    if (typeof bytes === "string") continue;
    for (const detail of fields(bytes).get(3) ?? []) {
      const any = fields(detail as Uint8Array);
      const [type] = any.get(1) ?? [];
      if (Buffer.from((type as Uint8Array) ?? []).toString() !== RETRY_INFO) continue;
      const [delay] = fields((any.get(2)?.[0] as Uint8Array) ?? new Uint8Array()).get(1) ?? [];
      const duration = fields((delay as Uint8Array) ?? new Uint8Array());
      const seconds = Number(duration.get(1)?.[0] ?? 0);
      const nanos = Number(duration.get(2)?.[0] ?? 0);
      return Math.round(seconds * 1_000 + nanos / 1_000_000);
    }
  }
  return undefined;
}

/** The fields of a message by number: bytes, or numbers. */
function fields(message: Uint8Array): Map<number, (Uint8Array | bigint)[]> {
  const reader = new BinaryReader(message);
  const found = new Map<number, (Uint8Array | bigint)[]>();
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    let value: Uint8Array | bigint;
    if (type === WireType.LengthDelimited) value = reader.bytes();
    else if (type === WireType.Varint) value = BigInt(reader.int64());
    else {
      reader.skip(type);
      continue;
    }
    found.set(number, [...(found.get(number) ?? []), value]);
  }
  return found;
}
