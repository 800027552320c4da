// ---- tables that are sorted by a click or a key on a heading ----
// Makes buttons of a table's headings. `sort` puts its rows in order; `table.sorting()` tells it by which column, and whether the
// largest comes first. Numbers begin with the largest, texts with the first letter. With no column given none is chosen yet.
const sortable = (table, sort, column = -1, isText = at => at === 0) => {
  const heads = [...table.tHead.rows[0].cells];
  let down = true;
  const show = () => heads.forEach((head, at) => {
    head.ariaSort = at !== column ? "none" : down ? "descending" : "ascending";
    head.dataset.sorted = at !== column ? "" : down ? "▾" : "▴";
  });
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      down = at === column ? !down : !isText(at);
      column = at;
      show();
      sort();
    });
  });
  table.sorting = () => ({ column, down });
  show();
};
// By cells: by their numbers in data-v, and else by their texts.
const sortableCells = table => {
  const isText = at => table.tBodies[0].rows[0]?.cells[at].dataset.v === undefined;
  sortable(table, () => {
    const { column, down } = table.sorting(), text = isText(column);
    const value = row => text ? row.cells[column].textContent : +row.cells[column].dataset.v;
    const order = (a, b) => text ? value(a).localeCompare(value(b)) : value(a) - value(b);
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => down ? order(b, a) : order(a, b)));
  }, -1, isText);
};
