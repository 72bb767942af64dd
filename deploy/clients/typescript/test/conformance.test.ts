// The scripts that every member passes, in whatever language: tests/client/scripts.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Player } from "./player.js";
import { scripts, steps } from "./script.js";

describe("the scripts that every member passes", () => {
  for (const script of scripts()) {
    const [plays, ...rest] = steps(script);
    for (const assignor of plays!.keys["assignors"]!.split(",")) {
      test(`${script}, ${assignor}`, () => {
        const player = new Player(assignor);
        for (const { line, word, plain, keys } of rest) {
          try {
            player.step(word, plain, keys);
          } catch (error) {
            (error as Error).message = `line ${line}: ${(error as Error).message}`;
            throw error;
          }
        }
        player.step("ends");
      });
    }
  }
});

test("a script that does not fit is noticed", () => {
  const player = new Player("range");
  player.step("member");
  assert.throws(() => player.step("polls"), /sends find/);
  assert.throws(() => player.step("sends", "find", { address: "b:2" }), /address/);
});
