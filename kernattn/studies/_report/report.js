for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const head = button.parentElement, table = head.closest("table"), body = table.tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending", column = head.cellIndex;
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = row => { const cell = row.cells[column]; return cell.dataset.value ?? cell.textContent; };
  const order = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    const by = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
    return down ? -by : by;
  };
  body.append(...[...body.rows].sort(order));
});
for (const button of document.querySelectorAll("button.download")) button.addEventListener("click", () => {
  const text = document.getElementById(button.dataset.of).textContent;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "application/jsonl"}));
  link.download = button.dataset.file;
  link.click();
  URL.revokeObjectURL(link.href);
});
