// ---- the state, which the address has, so that back and forward work ----
const START = { zoom: "", from: 0, to: Math.max(data.spans - 1, 0), metric: 0, query: "", way: "down" };
const state = { ...START };
const KEYS = { z: "zoom", f: "from", t: "to", m: "metric", q: "query", w: "way" };
const saved = () => {
  const words = new URLSearchParams();
  for (const [key, name] of Object.entries(KEYS)) if (state[name] !== START[name]) words.set(key, state[name]);
  return String(words);
};
const show = () => {
  Object.values(trees).forEach(tree => tree.sum(metric()));
  draw(); found(); table(); span();
  by("metric").value = state.metric;
  by("about").textContent = metric().about;
  for (const way of ["down", "up"]) by(way).checked = state.way === way;
  by("way-about").textContent = diff && state.way === "up" ? "The row below the widest box has the functions that allocate. Below each stand its callers." :
    state.way === "up" ? "The row below the widest box has the sites: the lines of code that allocate. Below each stand its callers." : "Below each box stand the functions that it calls. Where nothing stands below it, it is a site: a line of code that allocates.";
  if (by("search").value !== state.query) by("search").value = state.query;
};
let frame = 0;
const soon = () => { cancelAnimationFrame(frame); frame = requestAnimationFrame(show); };
// While something is being chosen it is shown, and the address stays.
const preview = to => { Object.assign(state, to); soon(); };
const change = (to, replace) => {
  cancelAnimationFrame(frame);
  Object.assign(state, to);
  const words = saved();
  if (words !== location.hash.slice(1)) history[replace ? "replaceState" : "pushState"](null, "", "#" + words);
  show();
};
const load = () => {
  const words = new URLSearchParams(location.hash.slice(1));
  const number = (key, most) => { const value = Number(words.get(key) ?? NaN); return Number.isInteger(value) && value >= 0 && value <= most ? value : START[KEYS[key]]; };
  Object.assign(state, START, { to: number("t", START.to), metric: number("m", metrics.length - 1), query: words.get("q") ?? "", way: words.get("w") === "up" ? "up" : "down" });
  state.from = number("f", state.to);
  state.zoom = words.get("z") ?? "";
  show();
};
addEventListener("popstate", load);

metrics.forEach((metric, at) => by("metric").append(new Option(metric.name, at)));
by("metric").addEventListener("change", event => change({ metric: Number(event.target.value) }));
for (const way of ["down", "up"]) by(way).addEventListener("change", () => change({ way, zoom: "" }));
by("out").addEventListener("click", () => { change({ zoom: tree().path(tree().up(zoomed())) }); if (by("out").disabled) focus(zoomed()); });
// Back leads to what was before the search, and not letter by letter.
let isTyping = false;
by("search").addEventListener("input", event => { change({ query: event.target.value }, isTyping); isTyping = true; });
by("search").addEventListener("blur", () => { isTyping = false; });
addEventListener("popstate", () => { isTyping = false; });
addEventListener("keydown", event => {
  const isField = event.target.matches("input,select"), isSearch = event.target.id === "search";
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "/" && (!isField || event.target.type !== "search")) { event.preventDefault(); by("search").focus(); }
  if (event.key !== "Escape" || (isField && !isSearch)) return;
  if (state.query !== "") change({ query: "" });
  else if (zoomed() !== 0) zoom(tree().up(zoomed()));
});
addEventListener("resize", soon);
if (by("waste")) sortableCells(by("waste"));
heads();
choosing();
load();
