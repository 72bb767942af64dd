// Errors that a worker raises. Each says what the library has tried already.

/** Base of the errors below. `code`: the coordinator's error code; empty: it sent none. */
export class CoordinatorError extends Error {
  override readonly name: string = "CoordinatorError";

  constructor(
    message: string,
    readonly code = "",
  ) {
    super(code === "" ? message : `${code}: ${message}`);
  }
}

/**
 * The group refuses this member: trying again with the same settings cannot help. It has stopped,
 * and its partitions were lost.
 */
export class FatalError extends CoordinatorError {
  override readonly name = "FatalError";
}

/** No coordinator answered, with growing pauses, until the call's time-out. */
export class Unavailable extends CoordinatorError {
  override readonly name = "Unavailable";
}

/** The commit was refused. Of one that is not atomic, some partitions may be stored. */
export class CommitFailed extends CoordinatorError {
  override readonly name: string = "CommitFailed";
}

/** The group is between assignments, and its assignment did not come in time. */
export class RebalanceInProgress extends CommitFailed {
  override readonly name = "RebalanceInProgress";
}

/**
 * The commit is for a partition that this member does not hold any more, or never did; or for a
 * holding that ended before the partition was assigned to it again. Refused before any call (the
 * message begins with "nothing was sent"), or by the coordinator.
 */
export class StaleMember extends CommitFailed {
  override readonly name = "StaleMember";
}

/** An expected offset was not the one stored. `found`: stored offsets by partition's name. */
export class OffsetMismatch extends CommitFailed {
  override readonly name = "OffsetMismatch";

  constructor(
    message: string,
    readonly found: ReadonlyMap<string, bigint>,
  ) {
    super(message, "OFFSET_MISMATCH");
  }
}

/**
 * The offset was stored, and the partition is being revoked: end the handler here. Thrown by
 * `commit`, and not to be caught, except with `drain: "manual"`, where it is not thrown.
 */
export class PartitionRevoked extends Error {
  override readonly name = "PartitionRevoked";
}
