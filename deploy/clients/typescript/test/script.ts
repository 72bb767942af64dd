// Reads the scripts of tests/client/scripts, whose README says what a step means.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../../../../../../tests/client/scripts/", import.meta.url));

export interface Step {
  readonly line: number;
  readonly word: string;
  /** What follows without a key. */
  readonly plain: string;
  readonly keys: Readonly<Record<string, string>>;
}

/** Names of all scripts. */
export function scripts(): string[] {
  const files = readdirSync(FOLDER).filter((file) => file.endsWith(".txt"));
  return files.sort().map((file) => file.slice(0, -".txt".length));
}

export function steps(name: string): Step[] {
  const lines = readFileSync(join(FOLDER, `${name}.txt`), "utf8").split("\n");
  return lines.flatMap((text, index): Step[] => {
    const [said = "", because] = text.split(/ because=(.*)/s);
    const [word, ...rest] = said.split(" ").filter((each) => each !== "");
    if (word === undefined || word.startsWith("#")) return [];
    const keys = Object.fromEntries(
      rest.filter((each) => each.includes("=")).map((each) => each.split(/=(.*)/s).slice(0, 2)),
    ) as Record<string, string>;
    if (because !== undefined) keys["because"] = because;
    const plain = rest.filter((each) => !each.includes("=")).join(" ");
    return [{ line: index + 1, word, plain, keys }];
  });
}
