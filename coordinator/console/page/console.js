// The console: asks every two seconds, and changes only what has changed.
"use strict";

const EVERY_MS = 2000;
const byId = (id) => document.getElementById(id);
let asked = 0;

// Ids are what clients make them. As coordinator/printable.py: what is not seen, or acts on the text
// around it, is shown by its number.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]|(?! )\p{Zs}/gu;
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const LENGTH_MAX = 300;

function printable(text) {
  const shown = text.length > LENGTH_MAX ? `${text.slice(0, LENGTH_MAX - 51)}…${text.slice(-50)}` : text;
  return shown.replace(UNSEEN, (char) => {
    const code = char.codePointAt(0);
    const digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    return NAMED[char] ?? `\\${{ 2: "x", 4: "u", 8: "U" }[digits]}${code.toString(16).padStart(digits, "0")}`;
  });
}

function cell(content, className) {
  const td = document.createElement("td");
  if (content instanceof Node) td.append(content);
  else td.textContent = printable(String(content ?? "–"));
  if (className) td.className = className;
  return td;
}

function row(...cells) {
  const tr = document.createElement("tr");
  tr.append(...cells);
  return tr;
}

function state(name) {
  const badge = document.createElement("span");
  badge.className = `state ${name}`;
  badge.textContent = name;
  return badge;
}

function groupLink(name) {
  const link = document.createElement("a");
  link.href = `#${encodeURIComponent(name)}`;
  link.textContent = printable(name) || "(empty id)";
  return link;
}

async function ask(path, query) {
  const answer = await fetch(`api/${path}?${new URLSearchParams(query)}`);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

// Replaces the rows only if they are others: focus and selection stay where they are.
function fill(body, key, rows) {
  const text = JSON.stringify(key);
  if (body.dataset.key === text) return;
  body.dataset.key = text;
  body.replaceChildren(...rows());
}

async function showGroups() {
  const contains = byId("filter").value;
  const { groups, matching } = await ask("groups", { contains });
  if (contains !== byId("filter").value) return;  // The answer to what was typed since is coming.
  const count = byId("groups-count");
  const text = groups.length === matching ? `${matching} groups`
    : `The first ${groups.length} of ${matching} groups; type a part of the name to find others`;
  if (count.textContent !== text) count.textContent = text;
  fill(byId("groups-rows"), groups, () => groups.map((g) => row(cell(groupLink(g.group)),
    cell(state(g.state)), cell(g.members, "number"), cell(g.protocolType || "–"))));
}

async function showGroup(name) {
  const [group, journal] = await Promise.all([ask("group", { group: name }), ask("rebalances", { group: name })]);
  const title = byId("group-title");
  if (title.textContent !== printable(name)) title.textContent = printable(name);
  const waits = group.awaited.length
    ? ` Waits for ${group.awaited.map((m) => printable(m.clientId || m.memberId)).join(", ")}.` : "";
  const summary = byId("group-summary");
  fill(summary, [group.state, group.generation, group.protocol, group.members.length, waits], () => [
    state(group.state),
    ` generation ${group.generation}, ${printable(group.protocol || "no protocol")}, ${group.members.length} members.${waits}`,
  ]);
  fill(byId("members"), group.members, () => group.members.map((m) =>
    row(cell(m.isLeader ? `${m.clientId} (leader)` : m.clientId), cell(m.host), cell(m.memberId),
      cell(m.instanceId || "–"), cell(m.partitions, "number"))));
  const clients = new Map(group.members.map((m) => [m.memberId, m.clientId]));
  fill(byId("partitions"), [group.partitions, [...clients]], () => group.partitions.map((p) =>
    row(cell(p.topic), cell(p.partition, "number"), cell(p.offset, "number"), cell(p.end, "number"),
      cell(p.lag, "number"), cell(clients.get(p.owner) ?? p.owner))));
  fill(byId("refused"), journal.refused, () => journal.refused.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
  showRebalances(name, journal.rebalances);
}

// Those that are there stay: one may be open, and being read.
function showRebalances(name, rebalances) {
  const list = byId("rebalances");
  const known = new Map([...list.children].map((d) => [d.dataset.key, d]));
  const items = rebalances.map((r) => {
    const key = `${name} ${r.generation} ${r.startedAt}`;
    return known.get(key) ?? rebalance(name, r, key);
  });
  if (items.length !== list.children.length || items.some((d, i) => d !== list.children[i])) {
    list.replaceChildren(...items);
  }
}

function rebalance(name, r, key) {
  const details = document.createElement("details");
  details.dataset.key = key;
  const summary = document.createElement("summary");
  const seconds = ((r.endedAt - r.startedAt) / 1000).toFixed(1);
  const at = new Date(r.startedAt).toLocaleTimeString();
  summary.textContent = `Generation ${r.generation}: ${r.cause}, ${r.outcome}, ${seconds} s, at ${at}`;
  const sentences = document.createElement("ul");
  for (const text of r.explanation) {
    const item = document.createElement("li");
    item.textContent = text;
    if (text.startsWith("Advice")) item.className = "advice";
    sentences.append(item);
  }
  details.append(summary, sentences);
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("img")) return;
    const picture = document.createElement("img");
    picture.src = `api/timeline.svg?group=${encodeURIComponent(name)}&generation=${r.generation}`;
    picture.alt = `Timeline of generation ${r.generation}: a lane a member. ${r.explanation.join(" ")}`;
    details.append(picture);
  });
  return details;
}

function here() {
  return decodeURIComponent(location.hash.slice(1));
}

async function look() {
  const name = here();
  const number = ++asked;
  const status = byId("status");
  try {
    await (name ? showGroup(name) : showGroups());
    if (number !== asked) return;
    status.className = "";
    status.textContent = "Live";
  } catch (error) {
    status.className = "bad";
    status.textContent = `Not live: ${error.message}`;
  }
}

function turn(event) {
  const name = here();
  byId("groups").hidden = Boolean(name);
  byId("group").hidden = !name;
  document.title = name ? `${printable(name)} – consumer groups` : "Consumer groups";
  for (const id of ["members", "partitions", "rebalances", "refused", "group-summary"]) {
    byId(id).replaceChildren();
    delete byId(id).dataset.key;
  }
  const looked = look();
  // Whoever has followed a link is where it leads; whoever has just come begins at the top.
  if (event) looked.then(() => byId(name ? "group-title" : "main").focus({ preventScroll: true }));
}

window.addEventListener("hashchange", turn);
byId("filter").addEventListener("input", look);
setInterval(() => document.hidden || look(), EVERY_MS);
turn();
