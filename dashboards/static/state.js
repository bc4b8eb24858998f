// What the page shows, kept in the fragment of its address, so that a link shows the same.
//
//   #run=KEY&impl=A,B&cells=PART&workload=NAME&series=NAME       what is left out is at its default
"use strict";

nvfp4bench.state = (() => {
  const names = ["run", "impl", "cells", "workload", "series"];

  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    return Object.fromEntries(names.map((name) => [name, given.get(name)]));
  }

  /** Change some of it; null goes back to the default. */
  function write(changes) {
    const kept = Object.entries({ ...read(), ...changes }).filter(([, value]) => value !== null);
    history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
  }

  return { read, write };
})();
