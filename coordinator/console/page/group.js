// A group: what it waits for, why it rebalanced, and folded below its members and partitions.

import { ask } from "./ask.js";
import { byId, element, keyed, setAttribute, setText, showSentences } from "./dom.js";
import { generationHref, pageOf, withParams } from "./route.js";
import { Pager, Table } from "./table.js";
import { NONE, ago, count, printable, spell, utc } from "./text.js";
import { timeline } from "./timeline.js";

const RETURNS = ["return", "static member returned", "coordinator returned", "member heard again"];
const PHASES = {
  initial: "The first members have joined; the group waits a moment for more.",
  join: "Join phase: members give their work back and join again.",
  sync: "Sync phase: the leader assigns the partitions, and the members fetch theirs.",
  assigning: "A plan is due: it takes in everything that has happened until then.",
  reconciling: "Partitions change hands one by one; all others are worked on.",
};

const WHY_FREE = {
  plan_due: "the next plan looks for a holder",
  nobody_receives: "no member receives partitions",
  capacity: "all members have as many as they take",
  not_allowed: "every member is excluded from them, or has refused them lately",
  pinned: "they are pinned to a member that is not there",
  refused: "they were refused three times in a row",
  handover_delay: "they wait after the end of a lease",
};

export class GroupView {
  constructor(go) {
    this.awaited = new Table(byId("awaited"), {
      id: "awaited-rows",
      label: "Members that the group waits for",
      keyOf: (m) => m.member_id,
      columns: [
        { label: "Client", show: (m) => (m.client_id || NONE) + (m.is_leader ? " (leader)" : "") },
        { label: "Host", show: (m) => m.host },
        { label: "Last seen", show: (m) => ago(m.last_seen_ms, this.nowMs) },
        {
          label: "Session timeout",
          show: (m) => (m.session_timeout_ms < 0 ? NONE : spell(m.session_timeout_ms)),
        },
        { label: "Member", className: "id", show: (m) => m.member_id },
      ],
    });
    this.handoffs = new Table(byId("handoffs-list"), {
      id: "handoffs",
      label: "Open hand-offs",
      keyOf: (h) => h.partition,
      columns: [
        { label: "Partition", show: (h) => h.partition },
        { label: "From", show: (h) => h.from || NONE },
        { label: "To", show: (h) => h.to || "nobody yet" },
        { label: "Phase", show: (h) => h.phase },
        { label: "Since", show: (h) => ago(h.since_ms, this.nowMs) },
        {
          label: "Ends in",
          show: (h) => (h.ends_ms < 0 ? NONE : spell(Math.max(0, h.ends_ms - this.nowMs))),
        },
        { label: "Waits for", show: (h) => h.waits_for || "the log" },
      ],
    });
    this.notable = new Table(byId("notable-list"), {
      id: "notable",
      label: "Members that are not at work",
      keyOf: (m) => m.member_id,
      columns: [
        { label: "Member", show: (m) => m.name },
        { label: "Status", show: (m) => m.status },
        { label: "Host", show: (m) => m.host },
        { label: "Partitions", className: "number", show: (m) => m.partitions },
        { label: "Last seen", show: (m) => ago(m.last_seen_ms, this.nowMs) },
        {
          label: "Lease ends in",
          show: (m) =>
            m.lease_ends_ms < 0 ? NONE : spell(Math.max(0, m.lease_ends_ms - this.nowMs)),
        },
      ],
    });
    this.members = new Table(byId("members-list"), {
      id: "members",
      label: "Members",
      keyOf: (m) => m.member_id,
      columns: [
        { label: "Client", show: (m) => (m.client_id || NONE) + (m.is_leader ? " (leader)" : "") },
        { label: "Host", show: (m) => m.host },
        { label: "Software", show: (m) => m.software || NONE },
        { label: "Partitions", className: "number", show: (m) => m.partitions },
        { label: "Instance", show: (m) => m.instance_id || NONE },
        { label: "Member", className: "id", show: (m) => m.member_id },
      ],
    });
    this.membersPager = new Pager(byId("members-list"), "Pages of members", (page) =>
      go(withParams({ members: page }), { replaces: true }),
    );
    const sortHref = (sort) => withParams({ sort: sort === "name" ? "" : sort, partitions: 1 });
    this.partitions = new Table(byId("partitions-list"), {
      id: "partitions",
      label: "Partitions",
      sortHref,
      keyOf: (p) => [p.topic, p.partition],
      columns: [
        { label: "Topic", sort: "name", ascends: true, show: (p) => p.topic },
        { label: "Partition", className: "number", show: (p) => p.partition },
        { label: "Offset", className: "number", show: (p) => p.offset },
        { label: "End", className: "number", show: (p) => p.end },
        { label: "Lag", sort: "lag", className: "number", show: (p) => p.lag },
        { label: "Owner", show: (p) => p.owner },
      ],
    });
    this.partitionsPager = new Pager(byId("partitions-list"), "Pages of partitions", (page) =>
      go(withParams({ partitions: page }), { replaces: true }),
    );
    for (const name of ["members", "partitions"]) {
      byId(`${name}-fold`).addEventListener("toggle", ({ target }) => {
        const isOpen = pageOf(new URLSearchParams(location.hash.split("?")[1]), name) !== null;
        if (target.open !== isOpen)
          go(withParams({ [name]: target.open ? 1 : "" }), { replaces: true });
      });
    }
    byId("find-partition").addEventListener("input", ({ target }) =>
      go(withParams({ find: target.value, partitions: 1 }), { replaces: true }),
    );
  }

  title({ group }) {
    return `${printable(group)} – consumer groups`;
  }

  open({ group, params }) {
    if (this.group !== group) {
      this.group = group;
      byId("group-content").hidden = true; // What is there is another group's.
    }
    setText(byId("group-title"), printable(group) || "(empty id)");
    this.partitions.sortedBy(params.get("sort") ?? "name");
    for (const name of ["members", "partitions"])
      byId(`${name}-fold`).open = pageOf(params, name) !== null;
    const find = byId("find-partition");
    if (find.value !== (params.get("find") ?? "")) find.value = params.get("find") ?? "";
  }

  async load({ group, params }) {
    const [found, journal] = await Promise.all([
      ask("group", {
        group,
        members: pageOf(params, "members") ?? 0,
        partitions: pageOf(params, "partitions") ?? 0,
        find: params.get("find") ?? "",
        sort: params.get("sort") ?? "name",
      }),
      ask("rebalances", { group }),
    ]);
    return { ...found, ...journal };
  }

  show(found, { group }) {
    this.nowMs = found.now_ms;
    byId("group-content").hidden = false;
    const badge = byId("group-state");
    setText(badge, found.state);
    setAttribute(badge, "class", `state ${found.state}`);
    setText(
      byId("group-summary-text"),
      [
        found.session ? "session group" : `generation ${found.generation}`,
        printable(found.protocol),
        count(found.member_count, "member"),
        found.partition_count ? count(found.partition_count, "partition") : "",
        found.lag === null ? "" : `lag ${found.lag}`,
      ]
        .filter(Boolean)
        .join(", "),
    );
    byId("lag-unknown").hidden = found.lag !== null || found.partition_count === 0;
    byId("no-owners").hidden =
      found.state !== "PreparingRebalance" && found.state !== "CompletingRebalance";
    this.showPhase(found);
    this.showSession(found);
    this.showRebalances(group, found);
    this.showMembers(found);
    setText(byId("partitions-summary"), `Partitions (${found.partition_count})`);
    byId("no-partitions").hidden = found.partition_count > 0;
    byId("partitions-controls").hidden = found.partition_count === 0;
    if (found.partitions) {
      this.partitions.show(found.partitions.rows);
      this.partitionsPager.show(found.partitions, found.partitions.rows.length);
      byId("no-partition-found").hidden =
        found.partitions.matching > 0 || found.partition_count === 0;
    }
  }

  showMembers(found) {
    setText(byId("members-summary"), `Members (${found.member_count})`);
    byId("no-members").hidden = found.member_count > 0;
    if (found.members) {
      this.members.show(found.members.rows);
      this.membersPager.show(found.members, found.members.rows.length);
    }
  }

  showSession({ session, now_ms: nowMs }) {
    byId("session").hidden = session === null;
    setText(byId("phase-title"), session ? "Under way now" : "Rebalancing now");
    setText(byId("journal-title"), session ? "Plans" : "Rebalances");
    if (session === null) return;
    const free = Object.entries(session.free).map(
      ([why, number]) => `${count(number, "partition")} without a holder: ${WHY_FREE[why] ?? why}`,
    );
    const reserved = session.reservations.map(
      (k) => `partitions are reserved for ${printable(k.name)}, for ${spell(Math.max(0, k.until_ms - nowMs))} at most`,
    );
    const about = `Lease ${spell(session.lease_ms)}, hand-offs ${session.mode}`;
    setText(byId("session-summary"), `${[about, ...free, ...reserved].join("; ")}.`);
    for (const name of ["handoffs", "notable"]) {
      byId(`${name}-title`).hidden = session[name].length === 0;
      byId(`${name}-list`).hidden = session[name].length === 0;
      this[name].show(session[name]);
    }
    setText(byId("handoffs-title"), `Open hand-offs (${session.handoff_count})`);
    setText(byId("notable-title"), `Members that are not at work (${session.notable_count})`);
  }

  showPhase({ phase, member_count: members, now_ms: nowMs }) {
    byId("phase").hidden = phase === null;
    if (phase === null) return;
    const most =
      phase.deadline_ms > nowMs
        ? `; it ends in ${spell(phase.deadline_ms - nowMs)} at the latest`
        : "";
    setText(
      byId("phase-since"),
      `${PHASES[phase.name]} Since ${utc(phase.since_ms, nowMs)}, for ${spell(nowMs - phase.since_ms)}${most}.`,
    );
    const { awaited, awaited_count: all } = phase;
    const shown = all > awaited.length ? `; the ${awaited.length} silent for longest` : "";
    const words = `It waits for ${all} of ${count(Math.max(members, all), "member")}${shown}:`;
    setText(byId("phase-awaited"), all ? words : "It waits for no member.");
    this.awaited.show(phase.awaited);
  }

  showRebalances(group, { rebalances, refused, session, now_ms: nowMs }) {
    byId("no-rebalances").hidden = rebalances.length > 0 || session !== null;
    byId("no-plans").hidden = rebalances.length > 0 || session === null;
    keyed(
      byId("rebalances"),
      rebalances,
      (r) => [group, r.generation, r.started_at_ms],
      (r) => foldOf(group, r),
      (fold, r) =>
        setText(
          fold.querySelector(".ago"),
          ` ${utc(r.started_at_ms, nowMs)}, ${ago(r.started_at_ms, nowMs)}`,
        ),
    );
    byId("refused-part").hidden = refused.length === 0;
    showSentences(byId("refused"), refused);
  }
}

/** A rebalance, folded: what it was in a line, why in sentences, and its timeline. */
function foldOf(group, r) {
  const client = r.caused_by?.client_id;
  const who = client ? ` (${printable(client)})` : "";
  const took = spell(r.ended_at_ms - r.started_at_ms);
  const sentences = element("ul", { className: "sentences" });
  showSentences(sentences, r.explanation);
  const picture = element("div");
  const link = element("a", {
    href: generationHref(group, r.generation),
    textContent: `All about generation ${r.generation}`,
  });
  const isReturn = RETURNS.includes(r.cause);
  const title = isReturn ? "Return" : r.plan ? "Plan" : `Generation ${r.generation}`;
  const what = r.plan ?? `${r.cause}${who}, ${r.outcome}, ${took}.`;
  const fold = element(
    "details",
    {},
    element(
      "summary",
      {},
      element("strong", { textContent: title }),
      element("span", { textContent: `: ${what}` }),
      element("span", { className: "ago quiet" }),
    ),
    sentences,
    ...(r.plan ? [] : [picture, element("p", {}, link)]),
  );
  if (r.plan) return fold;
  fold.addEventListener("toggle", () => {
    if (fold.open && !picture.firstChild) picture.append(timeline(group, r));
  });
  return fold;
}
