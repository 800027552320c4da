// SPDX-License-Identifier: MIT
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const by = id => document.getElementById(id);
const { labels, calls, rows, spans, diff } = data;

// ---- numbers ----
const bytes = n => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Math.abs(n), unit = 0;
  while (value >= 1024 && unit < 4) { value /= 1024; unit++; }
  const text = unit === 0 ? Math.round(value).toString() : value.toPrecision(value >= 999.5 ? 4 : 3);
  return (n < 0 ? "-" : "") + text + " " + units[unit];
};
const signed = n => (n >= 0 ? "+" : "") + bytes(n);
const count = n => Math.round(n).toLocaleString("en");
const time = ns => ns < 1e3 ? ns + " ns" : ns < 1e6 ? (ns / 1e3).toPrecision(3) + " µs" : ns < 1e9 ? (ns / 1e6).toPrecision(3) + " ms" : (ns / 1e9).toPrecision(4) + " s";
const percent = (n, of) => of === 0 ? "-" : (100 * n / of).toFixed(1) + " %";

// ---- what a row has: [call, at, peak, end, allocated, allocations, temporary, series]; of a diff: [call, before, after] ----
const state = { zoom: 0, from: 0, to: Math.max(spans - 1, 0), metric: 0, query: "" };
const within = row => {
  // Live bytes before the window and at its end, and what was allocated in it.
  let before = 0, live = 0, born = 0;
  const series = row[7];
  for (let i = 0; i < series.length; i += 3) {
    if (series[i] > state.to) break;
    live += series[i + 1];
    if (series[i] < state.from) before = live; else born += series[i + 2];
  }
  return { before, live, born };
};
const metrics = diff ? [
  { name: "change", of: row => Math.max(row[1], row[2]), text: bytes },
] : [
  { name: data.at, of: row => row[1], text: bytes },
  { name: "live at the end of the window", of: row => within(row).live, text: bytes },
  { name: "growth in the window", of: row => { const w = within(row); return w.live - w.before; }, text: bytes },
  { name: "allocated in the window", of: row => within(row).born, text: bytes },
  { name: "live at the end", of: row => row[3], text: bytes },
  { name: "allocations", of: row => row[5], text: count },
  { name: "temporary allocations", of: row => row[6], text: count },
];

// ---- the tree: a call's number is higher than its caller's ----
const n = calls.length, children = Array.from({ length: n }, () => []);
for (let call = 1; call < n; call++) children[calls[call][0]].push(call);
const width = new Float64Array(n), before = new Float64Array(n), after = new Float64Array(n);
const name = call => labels[calls[call][1]];
const sum = () => {
  width.fill(0); before.fill(0); after.fill(0);
  const of = metrics[state.metric].of;
  for (const row of rows) {
    width[row[0]] += Math.max(0, of(row));
    if (diff) { before[row[0]] += row[1]; after[row[0]] += row[2]; }
  }
  for (let call = n - 1; call > 0; call--) {
    const up = calls[call][0];
    width[up] += width[call]; before[up] += before[call]; after[up] += after[call];
  }
};
const color = call => {
  if (diff) {
    const change = after[call] - before[call], most = Math.max(after[call], before[call], 1);
    const part = Math.abs(change) / most;
    return part < 0.01 ? "same" : (change > 0 ? "up" : "down") + (part < 0.3 ? 1 : 2);
  }
  let hash = 0;
  for (const c of name(call)) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
  return "c" + hash % 6;
};
const said = call => {
  const text = metrics[state.metric].text, whole = width[0];
  return diff
    ? `${name(call)}: ${bytes(before[call])} before, ${bytes(after[call])} after, ${signed(after[call] - before[call])}`
    : `${name(call)}: ${text(width[call])}, ${percent(width[call], whole)}`;
};
const matches = call => state.query !== "" && name(call).toLowerCase().includes(state.query.toLowerCase());

// ---- the flame graph ----
const ROW = 21, flame = by("flame");
const box = (call, left, part, depth) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = color(call) + (matches(call) ? " hit" : "");
  button.style.cssText = `left:${left * 100}%;width:${part * 100}%;top:${depth * ROW}px`;
  button.textContent = part * flame.clientWidth > 24 ? name(call) : "";
  button.title = said(call);
  button.setAttribute("role", "treeitem");
  button.setAttribute("aria-level", depth + 1);
  button.setAttribute("aria-label", said(call));
  button.dataset.call = call;
  button.tabIndex = call === state.zoom ? 0 : -1;
  return button;
};
const draw = () => {
  const page = document.createDocumentFragment();
  // Callers of the widest box, each as wide.
  const path = [];
  for (let call = state.zoom; call !== 0; call = calls[call][0]) path.unshift(calls[call][0]);
  path.forEach((call, depth) => page.append(box(call, 0, 1, depth)));
  let deepest = path.length;
  const whole = width[state.zoom] || 1, ahead = [[state.zoom, 0, path.length]];
  while (ahead.length) {
    const [call, left, depth] = ahead.pop();
    const part = width[call] / whole;
    if (call !== state.zoom && part * flame.clientWidth < 1) continue;
    deepest = Math.max(deepest, depth);
    page.append(box(call, left, call === state.zoom ? 1 : part, depth));
    let at = left;
    for (const child of [...children[call]].sort((a, b) => width[b] - width[a])) {
      if (width[child] > 0) { ahead.push([child, at, depth + 1]); at += width[child] / whole; }
    }
  }
  flame.style.height = (deepest + 1) * ROW + "px";
  flame.replaceChildren(page);
  by("detail").textContent = said(state.zoom);
  let hits = 0, found = 0;
  if (state.query) {
    const inside = new Uint8Array(n);
    for (let call = 1; call < n; call++) {
      inside[call] = inside[calls[call][0]] || matches(call);
      if (matches(call)) { hits++; if (!inside[calls[call][0]]) found += width[call]; }
    }
    by("found").textContent = `${hits} boxes, ${metrics[state.metric].text(found)}, ${percent(found, width[0])}`;
  } else by("found").textContent = "";
};

// ---- the table ----
const sites = by("sites");
let sorted = 1;
const columns = diff ? ["before", "after", "change"] : [data.at, "at the window's end", "growth in it", "allocated in it", "allocations", "at the end"];
const table = () => {
  const groups = new Map();
  for (const row of rows) {
    const key = calls[row[0]][1], w = diff ? null : within(row);
    const values = diff ? [row[1], row[2], row[2] - row[1]] : [row[1], w.live, w.live - w.before, w.born, row[5], row[3]];
    const sums = groups.get(key);
    if (sums) values.forEach((value, at) => { sums[at] += value; }); else groups.set(key, values);
  }
  const order = ([, a], [, b]) => diff && sorted === 3 ? Math.abs(b[2]) - Math.abs(a[2]) : b[sorted - 1] - a[sorted - 1];
  const list = [...groups].filter(([label]) => state.query === "" || labels[label].toLowerCase().includes(state.query.toLowerCase())).sort(order).slice(0, 100);
  const head = ["site", ...columns].map((text, at) => {
    const th = document.createElement("th");
    th.textContent = text;
    if (at > 0) {
      th.dataset.sort = at; th.tabIndex = 0; th.setAttribute("role", "button");
      th.setAttribute("aria-sort", at === sorted ? "descending" : "none");
      if (at === sorted) th.textContent += " ▾";
    }
    return th;
  });
  sites.tHead.rows[0].replaceChildren(...head);
  sites.tBodies[0].replaceChildren(...list.map(([label, values]) => {
    const tr = document.createElement("tr");
    const texts = values.map((value, at) => diff ? (at === 2 ? signed(value) : bytes(value)) : at === 4 ? count(value) : at === 2 ? signed(value) : bytes(value));
    [labels[label], ...texts].forEach(text => { tr.insertCell().textContent = text; });
    return tr;
  }));
};

// ---- the window of time ----
const course = by("course"), shade = by("window");
const plot = () => matchMedia("(max-width:40rem)").matches ? data.plot_phone : data.plot;
const ends = () => [data.ends[state.from], data.ends[state.to + 1]];
const span = () => {
  if (diff) return;
  by("from").value = state.from; by("to").value = state.to;
  const [from, to] = ends(), [left, right] = plot();
  shade.hidden = state.from === 0 && state.to === spans - 1;
  shade.style.left = (left + (right - left) * from / data.duration) * 100 + "%";
  shade.style.width = (right - left) * (to - from) / data.duration * 100 + "%";
  by("times").textContent = `${time(from)} to ${time(to)}`;
};

// ---- state, which the address has, so that back and forward work ----
const save = replace => {
  const hash = "#" + new URLSearchParams({ z: state.zoom, f: state.from, t: state.to, m: state.metric, q: state.query });
  if (hash !== location.hash) history[replace ? "replaceState" : "pushState"](null, "", hash);
};
const show = () => { sum(); draw(); table(); span(); by("metric").value = state.metric; if (by("search").value !== state.query) by("search").value = state.query; };
const change = (to, replace) => { Object.assign(state, to); save(replace); show(); };
const load = () => {
  const hash = new URLSearchParams(location.hash.slice(1));
  const number = (key, most, otherwise) => { const value = parseInt(hash.get(key), 10); return value >= 0 && value <= most ? value : otherwise; };
  state.zoom = number("z", n - 1, 0);
  state.to = number("t", spans - 1, Math.max(spans - 1, 0));
  state.from = number("f", state.to, 0);
  state.metric = number("m", metrics.length - 1, 0);
  state.query = hash.get("q") ?? "";
  show();
};
addEventListener("popstate", load);
addEventListener("hashchange", load);

metrics.forEach((metric, at) => by("metric").append(new Option(metric.name, at)));
by("metric").addEventListener("change", event => change({ metric: Number(event.target.value) }));
by("search").addEventListener("input", event => change({ query: event.target.value }, true));
by("out").addEventListener("click", () => change({ zoom: calls[state.zoom][0] }));
const pick = target => { const th = target.closest("th[data-sort]"); if (th) { sorted = Number(th.dataset.sort); table(); } };
sites.addEventListener("click", event => pick(event.target));
sites.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(event.target); } });
flame.addEventListener("click", event => { const at = event.target.closest("[data-call]"); if (at) zoom(Number(at.dataset.call)); });
flame.addEventListener("focusin", event => { by("detail").textContent = said(Number(event.target.dataset.call)); });
flame.addEventListener("pointerover", event => { if (event.target.dataset.call) by("detail").textContent = said(Number(event.target.dataset.call)); });
const focus = call => { const at = flame.querySelector(`[data-call="${call}"]`); if (at) at.focus(); return at; };
const zoom = call => { change({ zoom: call }); focus(call); };
flame.addEventListener("keydown", event => {
  const call = Number(event.target.dataset.call);
  const wide = list => list.filter(child => width[child] > 0).sort((a, b) => width[b] - width[a]);
  const beside = wide(children[calls[call][0]]), at = beside.indexOf(call);
  const to = { ArrowUp: calls[call][0], ArrowDown: wide(children[call])[0], ArrowLeft: beside[at - 1], ArrowRight: beside[at + 1] }[event.key];
  if (to !== undefined) { event.preventDefault(); if (call !== 0 || event.key === "ArrowDown") focus(to); }
});
addEventListener("keydown", event => {
  const typing = event.target.matches("input,select");
  if (event.key === "Escape" && (!typing || event.target.id === "search")) { if (state.query) change({ query: "" }); else if (state.zoom) zoom(calls[state.zoom][0]); }
  if (event.key === "/" && !typing) { event.preventDefault(); by("search").focus(); }
});
if (!diff) {
  for (const id of ["from", "to"]) {
    by(id).max = spans - 1;
    by(id).addEventListener("input", event => {
      const value = Number(event.target.value);
      change(id === "from" ? { from: value, to: Math.max(value, state.to) } : { to: value, from: Math.min(value, state.from) }, true);
    });
  }
  const at = event => {
    const place = course.getBoundingClientRect(), [left, right] = plot();
    const part = ((event.clientX - place.left) / place.width - left) / (right - left);
    const ns = Math.min(Math.max(part, 0), 1) * data.duration;
    let span = 0;
    while (span < spans - 1 && data.ends[span + 1] < ns) span++;
    return span;
  };
  let began = null;
  course.addEventListener("pointerdown", event => { began = at(event); course.setPointerCapture(event.pointerId); });
  course.addEventListener("pointermove", event => { if (began !== null) { const now = at(event); change({ from: Math.min(began, now), to: Math.max(began, now) }, true); } });
  course.addEventListener("pointerup", event => {
    const now = at(event);
    if (began === now) change({ from: 0, to: spans - 1 }); else change({ from: Math.min(began, now), to: Math.max(began, now), metric: state.metric === 0 ? 2 : state.metric });
    began = null;
  });
}
let resized = 0;
addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(() => { draw(); span(); }); });
if (diff) sorted = 3;
load();
