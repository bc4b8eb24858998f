// Data beside the page. Chromium refuses fetch, modules and workers at file://, so each file of data is a classic
// script that calls nvfp4bench.receive(name, data), and is added to the page when it is first asked for.
"use strict";

window.nvfp4bench = (() => {
  const wanted = new Map(); // name -> {promise, resolve}

  function receive(name, data) {
    wanted.get(name).resolve(data);
  }

  /** A promise of the data called `name`; a second call gets the same one. */
  function load(name) {
    if (!wanted.has(name)) {
      const entry = {};
      entry.promise = new Promise((resolve, reject) => {
        entry.resolve = resolve;
        const script = document.createElement("script");
        script.src = `data/${encodeURIComponent(name)}.js`;
        script.onerror = () => reject(new Error(`data/${name}.js is missing; build the pages again.`));
        document.head.append(script);
      });
      wanted.set(name, entry);
    }
    return wanted.get(name).promise;
  }

  /** A promise of the rows called `name`, as objects: what `dashboards.scripts.packed` packed. */
  async function loadRows(name) {
    const { columns, texts, rows } = await load(name);
    const unpacked = (value, index) => (texts[index] === null || value === null ? value : texts[index][value]);
    return rows.map((values) => Object.fromEntries(values.map((value, index) => [columns[index], unpacked(value, index)])));
  }

  return { receive, load, loadRows };
})();
