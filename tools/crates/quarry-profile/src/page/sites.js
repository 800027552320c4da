// ---- the table of sites ----
const ROWS = 25;
let isLong = false;
const sites = by("sites");
// A column has a heading, the text of a number, and its explanation.
const columns = diff ? [
  { name: "before", text: bytes, about: "live bytes on the first side, the mean of its runs" },
  { name: "after", text: bytes, about: "the same on the second side" },
  { name: "change", text: signed, about: "after, less before. The largest change comes first, in either direction" },
  ...data.noise ? [{ name: "noise", text: n => "±" + bytes(n), about: "twice the standard error of the change, or more where runs are few. A smaller change may be chance" },
    { name: "against noise", text: n => ["", "within noise", "more than noise"][n], about: "what the two columns before say together" }] : [],
] : [
  { name: data.at, text: bytes, bounds: 0, of: value("at"), about: "bytes that were allocated and not yet freed at that moment" },
  { name: "live at the end of the window", text: bytes, of: row => within(row).live, whole: 1, about: "the same when the window of time ends" },
  { name: "growth in the window", text: signed, of: growth, about: "live bytes at the end of the window, less those at its beginning" },
  { name: "allocated in the window", text: bytes, of: row => within(row).born, whole: 2, about: "bytes that were requested within the window" },
  { name: "allocations", text: count, bounds: 3, of: value("allocations"), about: "how often memory was requested" },
  { name: "live at the end", text: bytes, bounds: 1, of: value("end"), about: "bytes that were never freed" },
];
// Of each site its name and its numbers with their intervals. Those of a comparison are there; others are summed up from the bottom-up tree.
const listed = () => {
  if (diff) return data.sites.map(([name, before, after, noise, sure]) => ({ name, values: [before, after, after - before, noise ?? 0, before === after ? 0 : sure ? 2 : 1].map(exact) }));
  const { n, rows, kids, top, name } = trees.up;
  const sums = columns.map(() => new Float64Array(n));
  for (const row of rows) columns.forEach(({ of }, at) => { sums[at][top[row[0]]] += of(row); });
  const values = call => columns.map((column, at) =>
    data.rate && column.of === growth ? aroundGrowth(sums[at][call], sums[at - 1][call]) : estimated(column, trees.up, call, sums[at][call]));
  return kids[0].map(call => ({ name: name(call), values: values(call) }));
};
const rowOf = ({ name, values }) => {
  const tr = document.createElement("tr"), th = document.createElement("th");
  th.scope = "row";
  th.textContent = name;
  tr.append(th);
  columns.forEach(({ text }, at) => {
    // The interval stands below its number, so that the table is narrow.
    const cell = tr.insertCell(), [number, bounds] = between(text, values[at]).split(/(?= \()/);
    cell.textContent = number;
    if (bounds === undefined) return;
    const small = document.createElement("small");
    small.textContent = bounds;
    cell.append(small);
  });
  return tr;
};
const table = () => {
  const all = listed(), list = all.filter(({ name }) => state.query === "" || isHit(name));
  const { column, down } = sites.sorting(), at = column - 1;
  const key = ({ values }) => diff && columns[at].name === "change" ? Math.abs(values[at][0]) : values[at][0];
  const order = column === 0 ? (a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0 : (a, b) => key(b) - key(a);
  list.sort((a, b) => down === (column !== 0) ? order(a, b) : order(b, a));
  sites.tBodies[0].replaceChildren(...list.slice(0, isLong ? list.length : ROWS).map(rowOf));
  by("more").hidden = isLong || list.length <= ROWS;
  by("more").textContent = `show ${count(list.length - ROWS)} more`;
  by("none").textContent = list.length === 0 ? "no site has this in its name" : "";
};
const heads = () => {
  const names = ["site", ...columns.map(({ name }) => name)];
  sites.tHead.rows[0].replaceChildren(...names.map(name => { const th = document.createElement("th"); th.scope = "col"; th.textContent = name; return th; }));
  by("terms").replaceChildren(...columns.flatMap(({ name, about }) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name; dd.textContent = about + ".";
    return [dt, dd];
  }));
  sortable(sites, table, diff ? 3 : 1);
  by("more").addEventListener("click", () => {
    isLong = true;
    table();
    sites.tBodies[0].rows[ROWS].scrollIntoView({ block: "nearest" });
  });
};
