// What the members in JavaScript share; member_lines.py says what is read and printed.
import { createInterface } from "node:readline";

export const options = JSON.parse(process.argv[2]);

/** The partitions of this member, as [topic, number]; every change is printed. */
export class Ownership {
  #owned = [];

  replace(partitions) {
    this.#owned = [...partitions].sort(([a, m], [b, n]) => a.localeCompare(b) || m - n);
    print({ event: "owned", partitions: this.#owned });
  }

  /** What an order to commit stores, as [topic, number, offset]. */
  offsets() {
    return this.#owned.map(([topic, number]) => [topic, number, 10 + number]);
  }

  committed(offsets) {
    print({ event: "committed", offsets });
  }
}

/** Lines of standard input; its end is an order to leave. */
export async function* orders() {
  for await (const line of createInterface({ input: process.stdin })) yield line.trim();
  yield "leave";
}

function print(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}
