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
export type { Change, Holding, Preparation } from "./session/holding.js";
export { SessionMember, type SessionSettings } from "./session/member.js";
export type {
  ErrorPolicy,
  ErrorSettings,
  HandlerSettings,
  Offset,
  Topics,
  WorkerSettings,
} from "./settings.js";
export type { CommitOptions, Partition } from "./worker/partition.js";
export type { Handler } from "./worker/handlers.js";
export type { Stage } from "./worker/run.js";
export type { CommitAllOptions } from "./worker/runs.js";
export { type PartitionState, Worker, type WorkerState } from "./worker/worker.js";
