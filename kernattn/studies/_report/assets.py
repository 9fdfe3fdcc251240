"""Style and script of a report: both are part of the page."""

STYLE = """
:root { --ink: #222; --soft: #595959; --line: #d9d9d9; --blue: #0072b2 }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem; color: var(--ink);
       font: 16px/1.5 system-ui, "DejaVu Sans", Verdana, sans-serif }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1.5rem 0 .5rem }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-bottom: .2rem; border-bottom: 1px solid var(--line) }
p { max-width: 48rem }
a { color: var(--blue) }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem }
.verdicts { list-style: none; padding: 0 }
.verdicts li { margin: .45rem 0; padding: .45rem .8rem; border-left: 4px solid #8c8c8c; background: #f6f6f6 }
.verdicts .holds { border-color: #009e73 }
.verdicts .part, .verdicts .open { border-color: #e69f00 }
.verdicts .fails { border-color: #d55e00 }
.verdicts b { display: inline-block; min-width: 1.3em }
figure { margin: 1.4rem 0 2rem }
figure svg { width: 100%; height: auto; display: block }
figure svg * { stroke-linejoin: round; stroke-linecap: butt }
figcaption { margin-top: .5rem; max-width: 56rem; color: var(--soft); font-size: .92rem }
pre { padding: .55rem .8rem; background: #f6f6f6; overflow-x: auto; font-size: .85rem }
.wide { width: fit-content; max-width: 100%; max-height: 32rem; overflow: auto; border: 1px solid var(--line) }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #ececec; white-space: nowrap;
         vertical-align: top }
.facts td { white-space: normal; overflow-wrap: anywhere; min-width: 13rem }
.facts .wide { max-height: none }
math { margin: .8rem 0 }
td.number { text-align: right }
thead th { position: sticky; top: 0; background: #fff; box-shadow: 0 1px 0 var(--line) }
th button { all: unset; cursor: pointer; font-weight: 600 }
th button:focus-visible { outline: 2px solid var(--blue) }
th button::after { content: " \\2195"; color: #aaa }
th[aria-sort=ascending] button::after { content: " \\2191"; color: inherit }
th[aria-sort=descending] button::after { content: " \\2193"; color: inherit }
.unsettled { color: #8a4b00 }
summary { cursor: pointer; margin: .6rem 0 }
@media print { .wide { max-height: none; overflow: visible } nav, .download { display: none } }
"""

SCRIPT = """
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
"""
