// The overview is whole without JavaScript; this only lets its tables be sorted.
"use strict";

for (const table of document.querySelectorAll("table.sortable")) nvfp4bench.tables.makeSortable(table);
