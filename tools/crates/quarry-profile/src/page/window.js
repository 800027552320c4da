// ---- the window of time ----
const course = by("course"), shade = by("window");
const plot = () => matchMedia("(max-width:40rem)").matches ? data.plotPhone : data.plot;
const span = () => {
  if (diff) return;
  const from = data.ends[state.from], to = data.ends[state.to + 1], [left, right] = plot();
  by("from").value = state.from; by("to").value = state.to;
  for (const [id, at] of [["from", from], ["to", to]]) by(id).setAttribute("aria-valuetext", time(at));
  shade.hidden = isAll();
  shade.style.left = (left + (right - left) * from / data.duration) * 100 + "%";
  shade.style.width = (right - left) * (to - from) / data.duration * 100 + "%";
  by("times").textContent = `window: ${from === 0 ? "0 s" : time(from)} to ${time(to)}${isAll() ? ", the whole time" : ""}`;
};
// Whoever chooses a window wants to see what happened in it.
const GROWTH = metrics.findIndex(({ name }) => name === "growth in the window");
const windowed = (from, to) => ({ from, to, metric: state.metric === 0 ? GROWTH : state.metric });
// And with the whole time, to see what was there before.
const wholly = () => ({ from: 0, to: data.spans - 1, metric: state.metric === GROWTH ? 0 : state.metric });
const choosing = () => {
  if (diff) return;
  const last = data.spans - 1;
  for (const id of ["from", "to"]) {
    by(id).max = last;
    const chosen = () => {
      const value = Number(by(id).value);
      return id === "from" ? windowed(value, Math.max(value, state.to)) : windowed(Math.min(value, state.from), value);
    };
    by(id).addEventListener("input", () => preview(chosen()));
    by(id).addEventListener("change", () => change(chosen()));
  }
  by("whole").addEventListener("click", () => change(wholly()));
  const at = event => {
    const place = course.getBoundingClientRect(), [left, right] = plot();
    const part = ((event.clientX - place.left) / place.width - left) / (right - left);
    const ns = Math.min(Math.max(part, 0), 1) * data.duration;
    let span = 0;
    while (span < last && data.ends[span + 1] <= ns) span++;
    return span;
  };
  let began = null;
  const chosen = event => { const now = at(event); return windowed(Math.min(began, now), Math.max(began, now)); };
  course.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    began = at(event);
    course.setPointerCapture(event.pointerId);
  });
  course.addEventListener("pointermove", event => { if (began !== null) preview(chosen(event)); });
  course.addEventListener("pointerup", event => {
    if (began === null) return;
    const to = chosen(event);
    began = null;
    change(to.from === to.to ? wholly() : to);
  });
  // What a finger began and the browser took for scrolling.
  course.addEventListener("pointercancel", () => { began = null; load(); });
};
