// ---- the two trees: a call's number is higher than its caller's ----
// A row is what a call has of its own: [call, values, series, variance].
const COLUMN = Object.fromEntries(data.columns.map((name, at) => [name, at]));
const value = name => row => row[1][COLUMN[name]] ?? 0;
const isAll = () => state.from === 0 && state.to === data.spans - 1;
// Live bytes before the window and at its end, and what was allocated in it.
const within = row => {
  let before = 0, live = 0, born = 0;
  if (isAll()) return { before, live: value("end")(row), born: value("allocated")(row) };
  const series = row[2];
  for (let i = 0; i < series.length; i += 3) {
    if (series[i] > state.to) break;
    live += series[i + 1];
    if (series[i] < state.from) before = live; else born += series[i + 2];
  }
  return { before, live, born };
};
const growth = row => { const w = within(row); return w.live - w.before; };

// What the boxes can show. `bounds` is the place of the interval among those of a call; `whole` is the same where the window is the
// whole time, and in other windows the interval comes from the number.
const metrics = diff ? [
  { name: "change of each box itself", text: bytes, own: true, of: row => Math.max(row[1][0], row[1][1]), about: "A box has the colour of what its own function allocates, whatever the functions that it calls do." },
  { name: "change of each box with all that it calls", text: bytes, of: row => Math.max(row[1][0], row[1][1]), about: "A box has the colour of everything in it: its own function, and all that it calls." },
] : [
  { name: data.at, text: bytes, of: value("at"), bounds: 0, about: "Live bytes are allocated and not yet freed. " + data.atAbout },
  ...data.at === data.peak ? [] : [{ name: data.peak, text: bytes, of: value("peak"), bounds: 4, about: "Bytes that were live at the moment at which most bytes were." }],
  { name: "live at the end of the window", text: bytes, of: row => within(row).live, whole: 1, about: "Bytes that were live when the window of time ended." },
  { name: "growth in the window", text: signed, of: growth, about: "Live bytes at the end of the window, less those at its beginning. Only calls that grew have a box. What shrank is in the table, and a sum over both stands above the graph." },
  { name: "allocated in the window", text: bytes, of: row => within(row).born, whole: 2, about: "All bytes that were requested within the window, whether they were freed or not." },
  { name: "live at the end", text: bytes, of: value("end"), bounds: 1, about: "Bytes that were never freed while the program was watched." },
  { name: "allocations", text: count, of: value("allocations"), bounds: 3, about: "How often memory was requested." },
  ...data.rate ? [] : [{ name: "temporary allocations", text: count, of: value("temporary"), about: "Blocks that their thread freed as the very next thing it did with memory: a buffer that is kept, or one on the stack, may do instead." }],
  ...COLUMN.waste === undefined ? [] : [{ name: "waste of pages", text: bytes, of: value("waste"), about: data.wasteAbout }],
];

// A tree with sums. `net` is what a call and all below it have, `width` the same without negative parts, by which boxes are drawn.
const treeOf = ({ calls, rows, bounds }) => {
  const n = calls.length, zeros = () => new Float64Array(n);
  const tree = { calls, rows, bounds, n, kids: Array.from({ length: n }, () => []), width: zeros(), net: zeros(), before: zeros(), after: zeros(), noise: zeros() };
  for (let call = 1; call < n; call++) tree.kids[calls[call][0]].push(call);
  // The child of the root that a call is below of.
  tree.top = new Uint32Array(n);
  for (let call = 1; call < n; call++) tree.top[call] = calls[call][0] === 0 ? call : tree.top[calls[call][0]];
  tree.up = call => calls[call][0];
  tree.name = call => data.labels[calls[call][1]];
  tree.wide = call => tree.kids[call].filter(kid => tree.width[kid] > 0).sort((a, b) => tree.width[b] - tree.width[a]);
  // A call by the labels on the way to it, so that addresses hold for all that the page shows.
  tree.path = call => { const path = []; for (; call !== 0; call = tree.up(call)) path.unshift(calls[call][1]); return path.join("."); };
  tree.find = path => path.split(".").reduce((at, label) => tree.kids[at]?.find(kid => String(calls[kid][1]) === label) ?? -1, 0);
  tree.sum = metric => {
    const { width, net, before, after, noise } = tree;
    for (const sums of [width, net, before, after, noise]) sums.fill(0);
    for (const row of rows) {
      const at = row[0], own = metric.of(row);
      width[at] += Math.max(0, own); net[at] += own;
      if (diff) { before[at] += row[1][0]; after[at] += row[1][1]; noise[at] += row[3] ?? 0; }
      else if (metric.of === growth) after[at] += within(row).live;
    }
    tree.own = diff && metric.own && state.way === "down" ? { before: before.slice(), after: after.slice(), noise: noise.slice() } : null;
    for (let call = n - 1; call > 0; call--) for (const sums of [width, net, before, after, noise]) sums[calls[call][0]] += sums[call];
  };
  return tree;
};
const trees = { down: treeOf(data.down), up: treeOf(data.up) };
const tree = () => trees[state.way];
const metric = () => metrics[state.metric];
const estimated = ({ bounds, whole }, tree, call, sum) => {
  const at = bounds ?? (isAll() ? whole : undefined);
  return !data.rate ? exact(sum) : at !== undefined ? tree.bounds[call].slice(3 * at, 3 * at + 3) : whole !== undefined ? around(sum) : exact(sum);
};
// A part of the whole. What grew and what shrank have none.
const part = (n, whole) => metric().of === growth ? "" : ", " + percent(n, whole);
const isHit = name => state.query !== "" && name.toLowerCase().includes(state.query.toLowerCase());

// What a comparison says of a call: its difference, and whether that is more than noise, as far as this is known.
const differs = call => {
  const { before, after, noise } = call === 0 ? tree() : tree().own ?? tree();
  const change = after[call] - before[call], most = Math.max(after[call], before[call], 1), error = 2 * Math.sqrt(noise[call]);
  return { before: before[call], after: after[call], change, error, part: Math.abs(change) <= error ? 0 : Math.abs(change) / most };
};
const said = call => {
  const at = tree(), { text } = metric();
  if (diff) {
    const d = differs(call);
    const noise = d.error === 0 ? "" : Math.abs(d.change) <= d.error ? `, within noise of ±${bytes(d.error)}` : `, more than noise of ±${bytes(d.error)}`;
    return `${at.name(call)}: ${at.own && call !== 0 ? "itself " : ""}${bytes(d.before)} before, ${bytes(d.after)} after, ${signed(d.change)}${noise}`;
  }
  const sum = data.rate && metric().of === growth ? aroundGrowth(at.net[call], at.after[call]) : estimated(metric(), at, call, at.net[call]);
  return `${at.name(call)}: ${between(text, sum)}${part(at.net[call], at.width[0])}`;
};
