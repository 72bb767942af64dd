// Log lines: one line each, which names group and member.

export interface Logger {
  debug(line: string): void;
  info(line: string): void;
  warn(line: string): void;
}

export type LogLevel = "debug" | "info" | "warn" | "silent";

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "silent"];

/** Writes lines of a level, and above, to stderr. */
export function stderrLogger(level: LogLevel = "info"): Logger {
  const write = (of: LogLevel) => (line: string) => {
    if (LEVELS.indexOf(of) < LEVELS.indexOf(level)) return;
    const at = new Date().toISOString();
    process.stderr.write(`${at} ${of.toUpperCase()} coordinator.client: ${line}\n`);
  };
  return { debug: write("debug"), info: write("info"), warn: write("warn") };
}

/** A logger whose lines begin with what `who` says at the time, and have no line breaks. */
export function prefixed(logger: Logger, who: () => string): Logger {
  const oneLine = (line: string): string => `${who()}: ${line.replace(/\s*[\r\n]+\s*/g, " | ")}`;
  return {
    debug: (line) => logger.debug(oneLine(line)),
    info: (line) => logger.info(oneLine(line)),
    warn: (line) => logger.warn(oneLine(line)),
  };
}

/** Kind and message of whatever was thrown. */
export function errorText(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
