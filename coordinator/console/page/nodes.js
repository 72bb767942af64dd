// Nodes and shards, as the node that was asked knows them.

import { ask } from "./ask.js";
import { byId, setText } from "./dom.js";
import { pageOf, withParams } from "./route.js";
import { Pager, Table } from "./table.js";
import { NONE, count } from "./text.js";

export class NodesView {
  constructor(go) {
    this.nodes = new Table(byId("nodes-list"), {
      id: "nodes-rows",
      label: "Nodes",
      keyOf: (n) => n.node_id,
      columns: [
        { label: "Node", show: (n) => `Node ${n.node_id}` },
        { label: "Address", show: (n) => n.address },
        {
          label: "State",
          show: (n) => ({
            text: n.draining ? "Draining" : "Serving",
            badge: n.draining ? "Draining" : "Serving",
          }),
        },
        { label: "Role", show: (n) => (n.is_controller ? "Controller" : NONE) },
        { label: "Shards led", className: "number", show: (n) => n.leads },
        { label: "Replicas", className: "number", show: (n) => n.replicas },
        { label: "In sync", className: "number", show: (n) => n.in_sync },
      ],
    });
    this.shards = new Table(byId("shards-list"), {
      id: "shards-rows",
      label: "Shards",
      className: "compact",
      keyOf: (s) => s.shard,
      columns: [
        { label: "Shard", className: "number", show: (s) => s.shard },
        {
          label: "Leader",
          className: "number",
          show: (s) => (s.leader < 0 ? { text: "none", badge: "Unled" } : s.leader),
        },
        { label: "Leader epoch", className: "number", show: (s) => s.epoch },
        { label: "Replicas", show: (s) => s.replicas.join(", ") || NONE },
        { label: "In sync", show: (s) => s.in_sync.join(", ") || NONE },
      ],
    });
    this.pager = new Pager(byId("shards-list"), "Pages of shards", (page) =>
      go(withParams({ page }), { replaces: true }),
    );
  }

  title() {
    return "Nodes – consumer groups";
  }

  open() {}

  load({ params }) {
    return ask("nodes", { page: pageOf(params, "page") ?? 1 });
  }

  show(found) {
    const unled = found.unled ? `; ${count(found.unled, "shard")} without a leader` : "";
    setText(
      byId("nodes-summary"),
      `${count(found.nodes.length, "node")}, ${count(found.shards.matching, "shard")}${unled}.`,
    );
    this.nodes.show(found.nodes);
    this.shards.show(found.shards.rows);
    this.pager.show(found.shards, found.shards.rows.length);
  }
}
