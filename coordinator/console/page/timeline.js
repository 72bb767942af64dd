// The picture of a rebalance, drawn by the node. A narrow screen scrolls it sideways.

import { element } from "./dom.js";

export function timeline(group, r) {
  const query = new URLSearchParams({
    group,
    generation: r.generation,
    started: r.started_at_ms,
  });
  const address = `api/timeline.svg?${query}`;
  const dark = { media: "(prefers-color-scheme: dark)", srcset: `${address}&scheme=dark` };
  const alt = `Timeline of generation ${r.generation}: a lane for each member. ${r.explanation.join(" ")}`;
  return element(
    "div",
    {
      className: "picture",
      role: "group",
      label: `Timeline of generation ${r.generation}`,
      tabIndex: 0,
    },
    element("picture", {}, element("source", dark), element("img", { src: address, alt })),
  );
}
