// Changes of the page that leave alone what has not changed: focus, selection, folds and the place on
// the page stay where they are when new data come every two seconds.

export const byId = (id) => document.getElementById(id);

/** An element with properties and children. Text is set as text: nothing here parses HTML. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  const { role, data, label, ...others } = properties;
  Object.assign(made, others);
  if (role) made.setAttribute("role", role);
  if (label) made.setAttribute("aria-label", label);
  Object.assign(made.dataset, data);
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/**
 * Makes the children of `parent` those of `items`: made once for each key, updated in place.
 * Moving an element takes its focus away, so the one with the focus stays and the others move. If it
 * is gone, the heading of its section gets the focus.
 */
export function keyed(parent, items, keyOf, make, update = () => {}) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = items.map((item) => {
    const key = JSON.stringify(keyOf(item));
    const child = known.get(key) ?? make(item);
    child.dataset.key = key;
    update(child, item);
    return child;
  });
  const kept = new Set(wanted);
  const gone = [...parent.children].filter((child) => !kept.has(child));
  const isLost = gone.some((child) => child.contains(document.activeElement));
  gone.forEach((child) => child.remove());
  const focused = wanted.findIndex((child) => child.contains(document.activeElement));
  for (let i = focused - 1; i >= 0; i -= 1) {
    if (wanted[i].nextSibling !== wanted[i + 1]) parent.insertBefore(wanted[i], wanted[i + 1]);
  }
  for (let i = focused + 1; i < wanted.length; i += 1) {
    const next = i ? wanted[i - 1].nextSibling : parent.firstChild;
    if (next !== wanted[i]) parent.insertBefore(wanted[i], next);
  }
  if (isLost)
    parent.closest("section")?.querySelector("[tabindex='-1']")?.focus({ preventScroll: true });
}

/** Sentences of an explanation; advice stands out. */
export function showSentences(list, sentences) {
  keyed(
    list,
    sentences.map((text, number) => ({ text, number })),
    (item) => item,
    ({ text }) =>
      element("li", { className: text.startsWith("Advice") ? "advice" : "", textContent: text }),
  );
}
