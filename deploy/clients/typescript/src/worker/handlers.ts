// Handlers by topic, as `worker.handler` names them.

import { checkHandlerSettings, type HandlerSettings, type ParsedSettings } from "../settings.js";
import type { Partition } from "./partition.js";

/** Called with one partition; when it returns, there is nothing to do now. */
export type Handler = (partition: Partition) => Promise<void> | void;

/** A handler, and what becomes of its partition when it fails. */
export interface Rules
  extends
    Pick<ParsedSettings, "onError" | "afterMaxAttempts" | "maxAttempts">,
    Pick<ParsedSettings, "retryBackoffMs" | "retryBackoffMaxMs"> {
  readonly handler: Handler;
  readonly drain: "commit" | "manual";
}

const ANY_TOPIC = "";
const RIGHT = "worker.handler(async (p) => { … })";

export class Handlers {
  private readonly byTopic = new Map<string, Rules>();

  constructor(private readonly defaults: ParsedSettings) {}

  /** @throws TypeError: it is no handler, or there is one already. */
  add(handler: Handler, settings: HandlerSettings): void {
    check(handler);
    checkHandlerSettings(settings);
    const topic = settings.topic ?? ANY_TOPIC;
    if (this.byTopic.has(topic)) {
      throw new TypeError(
        `${topic === ANY_TOPIC ? "the worker" : `topic ${topic}`} has a handler: another one is ` +
          `for a topic of its own, worker.handler(handle, { topic: "refunds" })`,
      );
    }
    const { retryBackoffMs, retryBackoffMaxMs } = this.defaults;
    this.byTopic.set(topic, {
      handler,
      drain: settings.drain ?? "commit",
      onError: settings.onError ?? this.defaults.onError,
      maxAttempts: settings.maxAttempts ?? this.defaults.maxAttempts,
      afterMaxAttempts: settings.afterMaxAttempts ?? this.defaults.afterMaxAttempts,
      retryBackoffMs,
      retryBackoffMaxMs,
    });
  }

  /** The handler of a topic; there is one, if `checkTopics` has passed. */
  of(topic: string): Rules {
    const found = this.byTopic.get(topic) ?? this.byTopic.get(ANY_TOPIC);
    if (found === undefined) throw new TypeError(`topic ${topic} has no handler: ${RIGHT}`);
    return found;
  }

  /** @throws TypeError: a topic has no handler. */
  checkTopics(topics: Iterable<string>): void {
    if (this.byTopic.has(ANY_TOPIC)) return;
    const missing = [...topics].filter((topic) => !this.byTopic.has(topic));
    if (missing.length === 0) return;
    throw new TypeError(
      `topic ${missing.join(", ")} has no handler: ${RIGHT}, or for it alone ` +
        `worker.handler(async (p) => { … }, { topic: "${missing[0]}" })`,
    );
  }
}

function check(handler: unknown): void {
  if (typeof handler !== "function") {
    throw new TypeError(`a handler is a function: ${RIGHT}, not ${String(handler)}`);
  }
  if (/Generator/.test(handler.constructor.name)) {
    throw new TypeError(`a handler is no generator: ${RIGHT}`);
  }
  if (handler.length > 1) {
    throw new TypeError(
      `a handler has one parameter, the partition, not ${handler.length}: ${RIGHT}`,
    );
  }
}
