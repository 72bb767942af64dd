// The package's face.

export type { AssignorName } from "./assignors/index.js";
export {
  CommitFailed,
  CoordinatorError,
  FatalError,
  OffsetMismatch,
  PartitionRevoked,
  RebalanceInProgress,
  StaleMember,
  Unavailable,
} from "./errors.js";
export { type Logger, type LogLevel, stderrLogger } from "./log.js";
export type { TopicPartition } from "./partitions.js";
export type { MemberPhase } from "./member/driver.js";
export type { MemberEvent } from "./member/events.js";
export type { Holding } from "./member/ledger.js";
export {
  type CommitAllOptions,
  Member,
  type MemberStanding,
  type Progress,
} from "./member/member.js";
export type {
  ErrorPolicy,
  ErrorSettings,
  HandlerSettings,
  MemberSettings,
  Offset,
  Topics,
  WorkerSettings,
} from "./settings.js";
export type { CommitOptions, Partition } from "./worker/partition.js";
export type { Handler } from "./worker/handlers.js";
export type { Stage } from "./worker/run.js";
export { type PartitionState, Worker, type WorkerState } from "./worker/worker.js";
