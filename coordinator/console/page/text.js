// Text of the page: clients' text made visible, numbers, durations, times.

// Ids are what clients make them. As coordinator/printable.py: characters that are invisible, or that
// act on the text around them, are shown by their numbers.
const UNSEEN =
  /[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]|(?! )\p{Zs}/gu;
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const LENGTH_MAX = 300;

export const NONE = "–";

export function printable(text) {
  const shown =
    text.length > LENGTH_MAX ? `${text.slice(0, LENGTH_MAX - 51)}…${text.slice(-50)}` : text;
  return shown.replace(UNSEEN, (char) => {
    const code = char.codePointAt(0);
    const digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    return (
      NAMED[char] ??
      `\\${{ 2: "x", 4: "u", 8: "U" }[digits]}${code.toString(16).padStart(digits, "0")}`
    );
  });
}

const UUID = /^(?:(.*)-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{8}([0-9a-f]{4})$/s;

/** Name of a member: its client id, or else its member id without most of its UUID. */
export const nameOf = (member) =>
  member.client_id || member.member_id.replace(UUID, "$1 …$2").trimStart();

/** Address of a member, without the slash before it. */
export const hostOf = (member) => (member.host ?? "").replace(/^\//, "");

export const count = (number, what) => `${number} ${what}${Number(number) === 1 ? "" : "s"}`;

/** A duration: 12 ms, 4.1 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. As `spell` of coordinator/observe/explain.py. */
export function spell(ms) {
  const seconds = Math.floor(ms / 1000);
  if (ms < 1000) return `${ms} ms`;
  if (seconds < 60) return `${(ms / 1000).toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400)
    return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** How long ago, in whole units: 4 s ago, 3 min ago. Milliseconds since the epoch; below zero: none. */
export function ago(atMs, nowMs) {
  if (atMs < 0) return NONE;
  const ms = Math.max(0, nowMs - atMs);
  return `${ms < 60000 ? `${Math.floor(ms / 1000)} s` : spell(ms).split(" ").slice(0, 2).join(" ")} ago`;
}

/** A time in UTC, as explanations and logs have it; with its date if that is not today's. */
export function utc(atMs, nowMs) {
  const [date, time] = new Date(atMs).toISOString().split("T");
  const isToday = new Date(nowMs).toISOString().startsWith(date);
  return `${isToday ? "" : `${date} `}${time.slice(0, 8)} UTC`;
}
