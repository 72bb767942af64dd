// The list of groups: found, filtered, sorted and paged by the node; the address says how.

import { byId, element, setText } from "./dom.js";
import { ask } from "./ask.js";
import { groupHref, pageOf, withParams } from "./route.js";
import { Pager, Table } from "./table.js";
import { NONE, ago, count, spell } from "./text.js";

const ORDERS = {
  name: "Name",
  state: "State",
  members: "Members",
  lag: "Lag",
  rebalance: "Last rebalance",
};
const STATES = { "": "All", rebalancing: "Rebalancing", stable: "Stable", empty: "Empty" };

export class GroupsView {
  constructor(go) {
    const sortHref = (sort) => withParams({ sort: sort === "name" ? "" : sort, page: "" });
    this.table = new Table(byId("groups-list"), {
      id: "groups-rows",
      label: "Groups",
      sortHref,
      keyOf: (g) => g.group_id,
      columns: [
        {
          label: "Group",
          sort: "name",
          ascends: true,
          show: (g) => ({ text: g.group_id || "(empty id)", href: groupHref(g.group_id) }),
        },
        {
          label: "State",
          sort: "state",
          ascends: true,
          show: (g) => ({ text: g.state, badge: g.state }),
        },
        { label: "Kind", show: (g) => g.type },
        { label: "Members", sort: "members", className: "number", show: (g) => g.members },
        { label: "Lag", sort: "lag", className: "number", show: (g) => g.lag },
        { label: "Assignor", show: (g) => g.protocol || (g.type !== "Session" && g.protocol_type) || NONE },
        { label: "Last rebalance", sort: "rebalance", show: (g) => this.lastRebalance(g) },
      ],
    });
    this.pager = new Pager(byId("groups-list"), "Pages of groups", (page) =>
      go(withParams({ page })),
    );
    fillSelect(byId("state"), STATES);
    fillSelect(byId("sort"), ORDERS);
    byId("state").addEventListener("change", (event) =>
      go(withParams({ state: event.target.value, page: "" })),
    );
    byId("sort").addEventListener("change", (event) => go(sortHref(event.target.value)));
    byId("filter").addEventListener("input", (event) =>
      go(withParams({ find: event.target.value, page: "" }), { replaces: true }),
    );
    byId("all-groups").addEventListener("click", () => {
      go(withParams({ find: "", state: "", page: "" }));
      byId("filter").focus();
    });
  }

  title() {
    return "Consumer groups";
  }

  /** Shows what the address asks for in the controls, before the answer comes. */
  open({ params }) {
    this.table.sortedBy(params.get("sort") ?? "name");
    for (const [id, value] of [
      ["filter", params.get("find") ?? ""],
      ["state", params.get("state") ?? ""],
      ["sort", params.get("sort") ?? "name"],
    ]) {
      if (byId(id).value !== value) byId(id).value = value;
    }
  }

  async load({ params }) {
    const found = await ask("groups", {
      find: params.get("find") ?? "",
      state: params.get("state") ?? "",
      sort: params.get("sort") ?? "name",
      page: pageOf(params, "page") ?? 1,
    });
    const isFiltered = Boolean(params.get("find") || params.get("state"));
    const nodes = found.matching || isFiltered ? null : await ask("nodes", {});
    return { ...found, isFiltered, nodes };
  }

  show(found) {
    this.nowMs = found.now_ms;
    const { groups, matching, isFiltered, nodes } = found;
    setText(byId("groups-count"), matching || isFiltered ? count(matching, "group") : "");
    byId("groups-controls").hidden = !matching && !isFiltered;
    byId("none-found").hidden = Boolean(matching) || !isFiltered;
    byId("no-groups").hidden = Boolean(matching) || isFiltered;
    if (nodes?.nodes.length) setText(byId("first-worker-address"), nodes.nodes[0].address);
    this.table.show(groups);
    this.pager.show(found, groups.length);
  }

  lastRebalance(group) {
    if (group.rebalancing_since_ms >= 0)
      return `now, for ${spell(this.nowMs - group.rebalancing_since_ms)}`;
    return ago(group.last_rebalance_ms, this.nowMs);
  }
}

function fillSelect(select, options) {
  select.append(
    ...Object.entries(options).map(([value, text]) =>
      element("option", { value, textContent: text }),
    ),
  );
}
