// Tables that sort by a press on a heading and show only the rows asked for.
for (const grid of document.querySelectorAll(".grid")) {
  const body = grid.querySelector("tbody");
  const rows = Array.from(body.rows);
  const headings = Array.from(grid.querySelectorAll("th"));
  const search = grid.querySelector("input[type=search]");
  const choices = Array.from(grid.querySelectorAll("select"));
  const shown = grid.querySelector("output");

  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;

  const compare = (left, right) => {
    const [a, b] = [Number(left), Number(right)];
    const numbers = left !== "" && right !== "" && !isNaN(a) && !isNaN(b);
    return numbers ? a - b : left.localeCompare(right, undefined, { numeric: true });
  };

  headings.forEach((heading, column) => {
    const button = heading.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      rows.sort((a, b) => sign * compare(value(a, column), value(b, column)));
      body.append(...rows);
    });
  });

  const filter = () => {
    const words = search.value.toLowerCase();
    let count = 0;
    for (const row of rows) {
      const wanted = choices.every(
        (choice) => choice.value === "" || value(row, Number(choice.dataset.column)) === choice.value.slice(1)
      );
      row.hidden = !(wanted && row.textContent.toLowerCase().includes(words));
      if (!row.hidden) count += 1;
    }
    shown.textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  };
  search.addEventListener("input", filter);
  for (const choice of choices) choice.addEventListener("change", filter);
}
