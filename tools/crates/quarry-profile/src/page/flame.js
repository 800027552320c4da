// ---- the flame graph ----
const flame = by("flame"), detail = by("detail");
const MOST_BOXES = 4000;
const color = call => {
  if (diff) {
    const { part, change } = differs(call);
    return part < 0.01 ? "same" : (change > 0 ? "up" : "down") + (part < 1 / 3 ? 1 : 2);
  }
  let hash = 0;
  for (const c of tree().name(call)) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
  return "c" + hash % 6;
};
const caption = call => {
  if (!diff) return tree().name(call);
  const { part, change } = differs(call);
  return part < 0.01 ? tree().name(call) : `${signed(change)} ${tree().name(call)}`;
};
const box = ([call, left, part, depth], pixels, height) => {
  const button = document.createElement("button"), at = tree();
  button.type = "button";
  button.className = color(call) + (isHit(at.name(call)) ? " hit" : "");
  button.style.cssText = `left:${left * 100}%;width:${part * 100}%;top:${depth * height}px`;
  button.textContent = part * pixels > 24 ? caption(call) : "";
  button.setAttribute("role", "treeitem");
  button.setAttribute("aria-level", depth + 1);
  button.setAttribute("aria-selected", call === zoomed());
  if (at.kids[call].length) button.setAttribute("aria-expanded", true);
  button.setAttribute("aria-label", said(call));
  button.dataset.call = call;
  button.tabIndex = call === zoomed() ? 0 : -1;
  return button;
};
const zoomed = () => { const at = state.zoom === "" ? 0 : tree().find(state.zoom); return at < 0 ? 0 : at; };
// The boxes that are at least so wide: the widest one, its callers above it, and all below.
const boxes = least => {
  const at = tree(), zoom = zoomed(), path = [], list = [];
  for (let call = zoom; call !== 0; call = at.up(call)) path.unshift(at.up(call));
  path.forEach((call, depth) => list.push([call, 0, 1, depth]));
  const whole = at.width[zoom], ahead = [[zoom, 0, 1, path.length]];
  while (ahead.length && list.length <= MOST_BOXES) {
    const next = ahead.pop(), [call, , , depth] = next;
    list.push(next);
    let left = next[1];
    const below = [];
    for (const kid of at.wide(call)) {
      const part = at.width[kid] / whole;
      if (part < least) break;
      below.push([kid, left, part, depth + 1]);
      left += part;
    }
    ahead.push(...below.reverse());
  }
  return list;
};
const draw = () => {
  const pixels = flame.clientWidth || 1, height = matchMedia("(pointer:coarse)").matches ? 27 : 21, focused = document.activeElement?.dataset?.call;
  let least = 1 / pixels, list = boxes(least);
  for (; list.length > MOST_BOXES; least *= 2) list = boxes(2 * least);
  const deepest = list.reduce((most, [, , , depth]) => Math.max(most, depth), 0);
  flame.style.height = (deepest + 1) * height + "px";
  flame.style.setProperty("--row", height - 1 + "px");
  flame.replaceChildren(...list.map(one => box(one, pixels, height)));
  detail.textContent = said(zoomed());
  by("out").disabled = zoomed() === 0;
  if (focused !== undefined) focus(Number(focused));
};
const found = () => {
  if (state.query === "") { by("found").textContent = ""; return; }
  // A match below a match is in it already.
  const at = trees.down, inside = new Uint8Array(at.n);
  let hits = 0, sum = 0;
  for (let call = 1; call < at.n; call++) {
    const hit = isHit(at.name(call)), above = inside[at.up(call)];
    inside[call] = hit || above;
    if (hit) { hits++; if (!above) sum += at.net[call]; }
  }
  by("found").textContent = hits === 0 ? "no box has this in its name" : `${count(hits)} ${hits === 1 ? "box" : "boxes"} of the whole graph, ${metric().text(sum)}${part(sum, at.width[0])}`;
};
const focus = call => { const at = flame.querySelector(`[data-call="${call}"]`); if (at) at.focus(); return at; };
const zoom = call => { change({ zoom: tree().path(call) }); focus(call); };
const point = target => {
  const call = target.dataset.call;
  if (call === undefined) return;
  detail.textContent = said(Number(call));
};
flame.addEventListener("click", event => { const at = event.target.closest("[data-call]"); if (at) zoom(Number(at.dataset.call)); });
flame.addEventListener("focusin", event => {
  point(event.target);
  flame.querySelectorAll('[tabindex="0"]').forEach(other => { other.tabIndex = -1; });
  event.target.tabIndex = 0;
});
flame.addEventListener("pointerover", event => point(event.target));
flame.addEventListener("keydown", event => {
  const call = Number(event.target.dataset.call), at = tree();
  if (!["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home"].includes(event.key)) return;
  event.preventDefault();
  const beside = at.wide(at.up(call)), place = beside.indexOf(call);
  const to = { ArrowUp: at.up(call), ArrowDown: at.wide(call)[0], ArrowLeft: beside[place - 1], ArrowRight: beside[place + 1], Home: 0 }[event.key];
  if (to !== undefined) focus(to);
});
