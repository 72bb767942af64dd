// The console: shows what the address says, and asks for it again every two seconds.

import { byId, setAttribute, setText } from "./dom.js";
import { GenerationView } from "./generation.js";
import { GroupView } from "./group.js";
import { GroupsView } from "./groups.js";
import { NodesView } from "./nodes.js";
import { here } from "./route.js";
import { utc } from "./text.js";

const EVERY_MS = 2000;
/** Share of the time for which a page asks: what takes a node long is asked less often. */
const BUSY_SHARE = 0.2;

const views = {
  groups: new GroupsView(go),
  group: new GroupView(go),
  generation: new GenerationView(),
  nodes: new NodesView(go),
  nowhere: { title: () => "Consumer groups", open() {}, load: async () => ({}), show() {} },
};
let asked = 0;
let turned = 0;
let isPaused = false;
let lastMs = null;
let version = null;
let shown = null;
/** The address whose view stands in its place; "" while one is on its way. */
let settled = "";
let timer;

/** Asks for what the address says, and shows it; another question makes the answer void. */
async function look() {
  clearTimeout(timer);
  asked += 1;
  const number = asked;
  const route = here();
  const view = views[route.view];
  const began = performance.now();
  try {
    const found = await view.load(route);
    if (number !== asked) return;
    byId("missing").hidden = true;
    byId(route.view).hidden = false;
    view.show(found, route);
    told(found);
  } catch (error) {
    if (number !== asked) return;
    failed(error, route);
  }
  const tookMs = performance.now() - began;
  timer = setTimeout(
    () => isPaused || document.hidden || look(),
    Math.max(EVERY_MS, tookMs / BUSY_SHARE),
  );
}

function told({ now_ms: nowMs, version: now }) {
  lastMs = nowMs ?? lastMs;
  if (now && now !== version) {
    setText(
      byId("version"),
      version === null ? `Version ${now}` : `Version ${now}: reload, this page is of ${version}`,
    );
    version ??= now;
  }
  setAttribute(byId("status"), "class", "");
  setText(byId("status"), isPaused ? `Paused at ${utc(lastMs, lastMs)}` : "Live");
}

/** An error that names its status came from the node; without one there was no answer. */
function failed(error, route) {
  const isMissing = error.status === 404;
  if (isMissing) {
    byId(route.view).hidden = true;
    byId("missing").hidden = false;
    setText(byId("missing-text"), error.message);
  }
  const seen = lastMs === null ? "" : ` What is shown is from ${utc(lastMs, lastMs)}.`;
  const words = error.status ? error.message : "the node does not answer.";
  setAttribute(byId("status"), "class", isMissing ? "" : "bad");
  setText(byId("status"), isMissing ? "Live" : `Not live: ${words}${seen}`);
}

/** Goes to another address of the page; `replaces`: the back button passes over the present one. */
function go(href, { replaces = false } = {}) {
  if (!replaces) {
    location.hash = href;
    return;
  }
  history.replaceState(history.state, "", href);
  if (settled) settled = location.href;
  const route = here();
  views[route.view].open(route);
  look();
}

/** Shows the view of the address, at the place where it was left. */
async function turn(event) {
  turned += 1;
  settled = "";
  const number = turned;
  const route = here();
  for (const name of Object.keys(views)) byId(name).hidden = name !== route.view;
  byId("missing").hidden = true;
  for (const link of document.querySelectorAll("header nav a")) {
    const isHere = link.hash === (route.view === "nodes" ? "#/nodes" : "#/");
    if (isHere)
      setAttribute(
        link,
        "aria-current",
        route.view === "groups" || route.view === "nodes" ? "page" : "true",
      );
    else link.removeAttribute("aria-current");
  }
  document.title = views[route.view].title(route);
  const place = JSON.stringify([route.view, route.group, route.generation]);
  const isElsewhere = place !== shown;
  shown = place;
  // An entry of the history without a state is new: it begins at the top. Others are come back to.
  const isNew = history.state === null;
  const y = history.state?.y ?? 0;
  if (isNew) history.replaceState({ y: isElsewhere ? 0 : scrollY }, "");
  views[route.view].open(route);
  setAttribute(byId("main"), "aria-busy", "true");
  await look();
  if (number !== turned) return; // Somebody has gone on meanwhile: the place is the next view's.
  setAttribute(byId("main"), "aria-busy", "false");
  settled = location.href;
  if (isElsewhere || !isNew) scrollTo(0, y);
  if (isElsewhere && event) byId(route.view).querySelector("h2").focus({ preventScroll: true });
}

history.scrollRestoration = "manual";
// It is told late, when the address may be another already, whose place would be lost.
addEventListener("scrollend", () => {
  if (location.href === settled) history.replaceState({ y: scrollY }, "");
});
addEventListener("hashchange", turn);
addEventListener("visibilitychange", () => document.hidden || isPaused || look());
byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  setAttribute(byId("pause"), "aria-pressed", String(isPaused));
  if (lastMs !== null)
    setText(byId("status"), isPaused ? `Paused at ${utc(lastMs, lastMs)}` : "Live");
  if (!isPaused) look();
});
turn();
