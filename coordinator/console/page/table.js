// Tables with named columns, whose rows are updated in place; a page of rows has a pager below it.

import { element, keyed, setAttribute, setText } from "./dom.js";
import { NONE, printable } from "./text.js";

/**
 * A table. A narrow screen shows each row as a list of its cells, unless its class is "compact"; the
 * roles keep it a table there.
 *
 * A column has a `label`, maybe a `className` and a `sort`, and `show(item)`: what the cell holds, a
 * text of the client's or ours, `{ text, href }` for a link or `{ text, badge }` for a state.
 */
export class Table {
  constructor(parent, { id, label, columns, keyOf, sortHref, className = "" }) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.sortHref = sortHref;
    this.heads = columns.map((column) =>
      element(
        "th",
        {
          scope: "col",
          role: "columnheader",
          className: column.className ?? "",
        },
        column.sort
          ? element("a", { href: sortHref(column.sort), textContent: column.label })
          : column.label,
      ),
    );
    this.body = element("tbody", { role: "rowgroup" });
    if (id) this.body.id = id;
    const head = element(
      "thead",
      { role: "rowgroup" },
      element("tr", { role: "row" }, ...this.heads),
    );
    this.table = element("table", { role: "table", label, className }, head, this.body);
    parent.append(this.table);
  }

  /** Tells the heads by which column the rows are sorted, and where they lead at this address. */
  sortedBy(sort) {
    this.columns.forEach((column, i) => {
      if (!column.sort) return;
      setAttribute(this.heads[i].firstChild, "href", this.sortHref(column.sort));
      if (column.sort === sort)
        setAttribute(this.heads[i], "aria-sort", column.ascends ? "ascending" : "descending");
      else this.heads[i].removeAttribute("aria-sort");
    });
  }

  show(items) {
    this.table.hidden = items.length === 0;
    keyed(
      this.body,
      items,
      this.keyOf,
      () =>
        element(
          "tr",
          { role: "row" },
          ...this.columns.map((column) =>
            element("td", {
              role: "cell",
              className: column.className ?? "",
              data: { label: column.label },
            }),
          ),
        ),
      (row, item) => this.columns.forEach((column, i) => showIn(row.cells[i], column.show(item))),
    );
  }
}

function showIn(cell, content) {
  const { text, href, badge } = content instanceof Object ? content : { text: content };
  const shown = printable(String(text ?? NONE)) || NONE;
  cell.classList.toggle("none", shown === NONE);
  const name = href ? "A" : "SPAN";
  let inner = cell.firstElementChild;
  if (inner?.tagName !== name) {
    inner = element(name);
    cell.replaceChildren(inner);
  }
  setText(inner, shown);
  if (href) setAttribute(inner, "href", href);
  setAttribute(inner, "class", badge ? `state ${badge}` : "");
}

/** Buttons for pages of rows. They stay where they are, so the focus does too. */
export class Pager {
  constructor(parent, label, turn) {
    const button = (text, by) => {
      const made = element("button", { type: "button", textContent: text });
      made.addEventListener(
        "click",
        () => made.getAttribute("aria-disabled") === "true" || turn(this.page + by),
      );
      return made;
    };
    this.previous = button("Previous", -1);
    this.next = button("Next", 1);
    this.text = element("span", { className: "quiet" });
    this.nav = element("nav", { className: "pager", label }, this.previous, this.next, this.text);
    parent.append(this.nav);
  }

  /** Shows where a page of `rows` rows, which begins after `skip`, stands among `matching`. */
  show({ skip, limit, matching }, rows) {
    this.page = Math.floor(skip / limit) + 1;
    this.nav.hidden = matching <= limit && skip === 0;
    setAttribute(this.previous, "aria-disabled", String(skip === 0));
    setAttribute(this.next, "aria-disabled", String(skip + rows >= matching));
    setText(
      this.text,
      rows ? `${skip + 1} to ${skip + rows} of ${matching}` : `none of ${matching} on this page`,
    );
  }
}
