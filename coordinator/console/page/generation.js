// A rebalance, by the generation that it led to: its phases, members, and the partitions that moved.

import { ask } from "./ask.js";
import { byId, element, keyed, setAttribute, setText, showSentences } from "./dom.js";
import { groupHref } from "./route.js";
import { Table } from "./table.js";
import { NONE, ago, count, nameOf, printable, spell, utc } from "./text.js";
import { timeline } from "./timeline.js";

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
    const part = element(
      "div",
      {},
      facts,
      element("h3", { textContent: "Why" }),
      sentences,
      element("h3", { textContent: "Timeline" }),
      timeline(group, r),
    );
    const tableOf = (title, options) => {
      const summary = element("summary");
      const box = element("details", {}, summary);
      part.append(box);
      return { title, box, summary, table: new Table(box, { label: title, ...options }) };
    };
    const after = (ms) => (ms < 0 ? NONE : `after ${spell(ms - r.started_at_ms)}`);
    part.parts = {
      facts,
      sentences,
      members: tableOf("Members that joined", {
        keyOf: (m) => m.member_id,
        columns: [
          {
            label: "Client",
            show: (m) => (m.client_id || NONE) + (m.member_id === r.leader ? " (leader)" : ""),
          },
          { label: "Host", show: (m) => m.host },
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
          { label: "Host", show: (m) => m.host },
          { label: "Cause", show: (m) => m.cause },
          { label: "Member", className: "id", show: (m) => m.member_id },
        ],
      }),
    };
    return part;
  }
}

function update(part, r, nowMs) {
  const { facts, sentences, members, removed } = part.parts;
  const phase = (ms) => (ms < 0 ? "not reached" : spell(ms));
  const rows = [
    ["Cause", r.cause],
    ["Caused by", r.client_id || r.member_id ? nameOf(r) : ""],
    ["Outcome", r.outcome],
    ["Began", `${utc(r.started_at_ms, nowMs)}, ${ago(r.started_at_ms, nowMs)}`],
    ["Took", spell(r.ended_at_ms - r.started_at_ms)],
    ["Join phase", phase(r.join_phase_ms)],
    ["Sync phase", phase(r.sync_phase_ms)],
    ["Stored", phase(r.durable_phase_ms)],
    ["Members", count(r.member_count, "member")],
    ["Assignor", r.protocol],
  ].filter(([, value]) => value);
  keyed(
    facts,
    rows,
    ([name]) => name,
    ([name]) => element("div", {}, element("dt", { textContent: name }), element("dd")),
    (row, [, value]) => setText(row.lastChild, printable(value)),
  );
  showSentences(sentences, r.explanation);
  for (const [{ title, box, summary, table }, items, all] of [
    [members, r.participants, r.member_count],
    [removed, r.removed, r.removed_count],
  ]) {
    box.hidden = items.length === 0;
    setText(
      summary,
      `${title} (${all > items.length ? `${items.length} of ${all}` : items.length})`,
    );
    table.show(items);
  }
}
