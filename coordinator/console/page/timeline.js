// The picture of a rebalance, drawn by the node for wide and for narrow screens.

import { element } from "./dom.js";

/** As in console.css. */
const NARROW = "(max-width: 47.99rem)";
const DARK = "(prefers-color-scheme: dark)";

export function timeline(group, r) {
  const query = new URLSearchParams({
    group,
    generation: r.generation,
    started: r.started_at_ms,
  });
  const address = `api/timeline.svg?${query}`;
  const sources = [
    [`${NARROW} and ${DARK}`, "&width=narrow&scheme=dark"],
    [NARROW, "&width=narrow"],
    [DARK, "&scheme=dark"],
  ].map(([media, how]) => element("source", { media, srcset: address + how }));
  const alt = `Timeline of generation ${r.generation}: a lane for each member. ${r.explanation.join(" ")}`;
  return element(
    "div",
    {
      className: "picture",
      role: "group",
      label: `Timeline of generation ${r.generation}`,
      tabIndex: 0,
    },
    element("picture", {}, ...sources, element("img", { src: address, alt })),
  );
}
