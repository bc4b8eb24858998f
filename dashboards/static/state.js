// What the page shows, kept in the fragment of its address, so that a link shows the same.
//
//   an architecture's page    #run=KEY&impl=A,B&cells=PART&workload=NAME&point=NAME&series=NAME&kv=TOKENS&budget=ERROR&weights=KxN&counters-work=KIND&counters-dim=D
//   instruction sets          #release=R&text=WORDS&family=NAME&verdict=NAME&targets=A,B&rows=FIRST&program=ID
//
// What is left out is at its default.
"use strict";

nvfp4bench.state = (() => {
  const read = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

  /** Change some of it; null goes back to the default. */
  function write(changes) {
    const kept = Object.entries({ ...read(), ...changes }).filter(([, value]) => value !== null);
    history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
  }

  return { read, write };
})();
