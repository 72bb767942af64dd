// A rebalance, by the generation that it led to: its phases, members, and the partitions that moved.

import { ask } from "./ask.js";
import { byId, element, keyed, setAttribute, setText, showSentences } from "./dom.js";
import { groupHref } from "./route.js";
import { Table } from "./table.js";
import { NONE, ago, count, hostOf, nameOf, printable, spell, utc } from "./text.js";
import { timeline } from "./timeline.js";

/** More moves than these are folded. */
const MOVES_SHOWN = 10;

export class GenerationView {
  title({ group, generation }) {
    return `Generation ${printable(generation)} of ${printable(group)} – consumer groups`;
  }

  open({ group, generation }) {
    setText(
      byId("generation-title"),
      `Generation ${printable(generation)} of ${printable(group) || "(empty id)"}`,
    );
    setText(byId("generation-group"), printable(group) || "(empty id)");
    setAttribute(byId("generation-group"), "href", groupHref(group));
    const key = JSON.stringify([group, generation]);
    if (this.key !== key) byId("generation-parts").replaceChildren();
    this.key = key;
  }

  load({ group, generation }) {
    return ask("generation", { group, generation });
  }

  show(found, { group }) {
    byId("generation-gone").hidden = found.rebalances.length > 0;
    keyed(
      byId("generation-parts"),
      found.rebalances,
      (r) => [r.generation, r.started_at_ms],
      (r) => this.make(group, r),
      (part, r) => update(part, r, found.now_ms),
    );
  }

  make(group, r) {
    const facts = element("dl", { className: "facts" });
    const sentences = element("ul", { className: "sentences" });
    const part = element("div", {}, facts, element("h3", { textContent: "Why" }), sentences);
    const tableOf = (title, options, open = false) => {
      const summary = element("summary");
      const box = element("details", { open }, summary);
      part.append(box);
      return { title, box, summary, table: new Table(box, { label: title, ...options }) };
    };
    const after = (ms) => (ms === null ? NONE : `after ${spell(ms - r.started_at_ms)}`);
    const moves = tableOf(
      "Partitions that moved or stood idle",
      {
        keyOf: (m) => m.partitions,
        columns: [
          { label: "Partitions", show: (m) => m.partitions },
          { label: "From", show: (m) => m.from },
          { label: "To", show: (m) => (m.has_moved ? m.to : "stayed") },
          { label: "Not worked on", show: (m) => m.not_worked_on },
          { label: "The owner stopped when", show: (m) => m.known_by },
        ],
      },
      r.moves.length <= MOVES_SHOWN,
    );
    part.append(element("h3", { textContent: "Timeline" }), timeline(group, r));
    part.parts = {
      facts,
      sentences,
      moves,
      members: tableOf("Members that joined", {
        keyOf: (m) => m.member_id,
        columns: [
          {
            label: "Client",
            show: (m) => (m.client_id || NONE) + (m.is_leader ? " (leader)" : ""),
          },
          { label: "Host", show: hostOf },
          { label: "Software", show: (m) => m.client_software || NONE },
          { label: "Joined", show: (m) => after(m.joined_at_ms) },
          { label: "Fetched its partitions", show: (m) => after(m.synced_at_ms) },
          { label: "New", show: (m) => (m.is_new ? "new" : NONE) },
          { label: "Member", className: "id", show: (m) => m.member_id },
        ],
      }),
      removed: tableOf("Members that were removed", {
        keyOf: (m) => m.member_id,
        columns: [
          { label: "Client", show: (m) => m.client_id || NONE },
          { label: "Host", show: hostOf },
          { label: "Cause", show: (m) => m.cause },
          {
            label: "Last seen",
            show: (m) =>
              m.last_seen_ms > 0 ? `${spell(m.removed_at_ms - m.last_seen_ms)} before` : NONE,
          },
          { label: "Member", className: "id", show: (m) => m.member_id },
        ],
      }),
    };
    return part;
  }
}

function update(part, r, nowMs) {
  const { facts, sentences, moves, members, removed } = part.parts;
  const idle = r.not_worked_on;
  const phase = (ms) => (ms === null ? "not reached" : spell(ms));
  const rows = [
    ["Cause", r.cause],
    ["Caused by", r.caused_by ? nameOf(r.caused_by) : ""],
    ["Outcome", r.outcome],
    ["Began", `${utc(r.started_at_ms, nowMs)}, ${ago(r.started_at_ms, nowMs)}`],
    ["Took", spell(r.ended_at_ms - r.started_at_ms)],
    ["Join phase", phase(r.phases_ms.join)],
    ["Sync phase", phase(r.phases_ms.sync)],
    ["Stored", phase(r.phases_ms.durable)],
    ["Members", count(r.members, "member")],
    ["Assignor", r.protocol],
    ["Round", r.cooperative_round ? `${r.cooperative_round} of a cooperative rebalance` : ""],
    ["Partitions moved", r.partitions_moved === null ? "" : String(r.partitions_moved)],
    ["Not worked on", idle ? `${count(idle.partitions, "partition")}, ${idle.longest}` : ""],
  ].filter(([, value]) => value);
  keyed(
    facts,
    rows,
    ([name]) => name,
    ([name]) => element("div", {}, element("dt", { textContent: name }), element("dd")),
    (row, [, value]) => setText(row.lastChild, printable(value)),
  );
  showSentences(sentences, r.explanation);
  for (const [{ title, box, summary, table }, items, shown, all] of [
    [moves, r.moves, moved(r.moves), moved(r.moves) + r.partitions_left_out],
    [members, r.participants, r.participants.length, r.members],
    [removed, r.removed, r.removed.length, r.removed_count],
  ]) {
    box.hidden = items.length === 0;
    setText(summary, `${title} (${all > shown ? `${shown} of ${all}` : shown})`);
    table.show(items);
  }
}

const moved = (moves) => moves.reduce((sum, m) => sum + m.count, 0);
