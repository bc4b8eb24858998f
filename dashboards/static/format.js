// Numbers as people read them.
"use strict";

/** 3 digits: 0.0123, 4.56e-7; with the suffix "s" in the unit that suits: 12.3 µs. What has no number is a dash. */
nvfp4bench.format = (value, suffix = "") => {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(Number(value))) return "inf";
  if (suffix !== "s") return threeDigits(value) + suffix;
  const [unit, size] = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]].find(([, least]) => value >= least) ?? ["ns", 1e-9];
  return `${threeDigits(value / size)} ${unit}`;

  function threeDigits(x) {
    if (x === 0) return "0";
    return Math.abs(x) >= 1e-3 && Math.abs(x) < 1e5 ? String(Number(x.toPrecision(3))) : x.toExponential(2);
  }
};

/** Token counts: 1024 is 1k. */
nvfp4bench.tokens = (count) => (count % 1024 === 0 ? `${count / 1024}k` : String(count));
