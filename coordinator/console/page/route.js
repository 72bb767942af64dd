// Addresses of the page: what is shown, and how, is in the fragment, so that it survives a reload and
// can be sent to somebody.
//
//   #/                                 groups: ?find= &state= &sort= &page=
//   #/groups/NAME                      a group: ?members=PAGE &partitions=PAGE &find= &sort=
//   #/groups/NAME/generations/NUMBER   a rebalance, by the generation that it led to
//   #/nodes                            nodes and shards: ?page=

/** Parses the fragment of the address: `{ view, group, generation, params }`. */
export function here() {
  const fragment = location.hash.slice(1);
  const [path, query] = fragment.split("?");
  const params = new URLSearchParams(query ?? "");
  const parts = path.split("/").map(decoded);
  if (path === "" || path === "/") return { view: "groups", params };
  if (path === "/nodes") return { view: "nodes", params };
  if (parts[1] === "groups" && parts.length === 3)
    return { view: "group", group: parts[2], params };
  if (parts[1] === "groups" && parts[3] === "generations" && parts.length === 5) {
    return { view: "generation", group: parts[2], generation: parts[4], params };
  }
  return { view: "nowhere", params };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // A % that stands for itself.
  }
}

export const groupHref = (group) => `#/groups/${encodeURIComponent(group)}`;
export const generationHref = (group, generation) =>
  `${groupHref(group)}/generations/${generation}`;

/** The present address with other parameters; an empty one is left out. */
export function withParams(changes) {
  const { params } = here();
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null) params.delete(name);
    else params.set(name, value);
  }
  const path = location.hash.split("?")[0] || "#/";
  return params.size ? `${path}?${params}` : path;
}

/** Number of the page that a parameter names, from 1 on; null if it is missing. */
export function pageOf(params, name) {
  const value = params.get(name);
  return value === null ? null : Math.max(1, Number.parseInt(value, 10) || 1);
}
