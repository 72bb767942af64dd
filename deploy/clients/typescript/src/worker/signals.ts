// SIGTERM and SIGINT: the first drains and leaves, the second ends the process at once.

const SIGNALS = ["SIGTERM", "SIGINT"] as const;

/** Begin to listen; the result puts everything back. */
export function onSignals(stop: (signal: string) => void): () => void {
  let isStopping = false;
  const listen = (signal: NodeJS.Signals): void => {
    if (isStopping) {
      restore();
      process.kill(process.pid, signal); // Nobody listens now: the default, which ends it.
      return;
    }
    isStopping = true;
    stop(signal);
  };
  const restore = (): void => {
    for (const signal of SIGNALS) process.off(signal, listen);
  };
  for (const signal of SIGNALS) process.on(signal, listen);
  return restore;
}
