// The matrix of programs and targets, as dashboards/matrix.py packs it: read, searched, and made into rows of cells.
"use strict";

nvfp4bench.matrix = (() => {
  /** Texts for numbers: {release, targets, families, programs: [{id, family, outcomes}]}, an outcome for each target. */
  function unpack(packed) {
    const outcomes = packed.outcomes.map((outcome) => unpackOutcome(packed, outcome));
    const rows = packed.rows.map((row) => row.map((number) => outcomes[number]));
    const programs = packed.programs.map(([family, rest, row]) => {
      const id = packed.families[family] + rest;
      return { id, family: packed.families[family], outcomes: rows[row], searched: id.toLowerCase() };
    });
    return { release: packed.release, targets: packed.targets, families: packed.families, programs };
  }

  /** {verdict, kind, messages, opcodes: [[name, how often], ...], warnings}; what an outcome does not have is null or empty. */
  function unpackOutcome(packed, [verdict, what, texts]) {
    const outcome = { verdict: packed.verdicts[verdict], kind: null, messages: [], opcodes: null, warnings: [] };
    const said = texts.map((number) => packed.messages[number]);
    if (outcome.verdict === "refused") Object.assign(outcome, { kind: packed.kinds[what], messages: said });
    else Object.assign(outcome, { opcodes: what && inPairs(packed.opcodes, what), warnings: said });
    outcome.searched = textOf(outcome).toLowerCase();
    return outcome;
  }

  function inPairs(opcodes, flat) {
    const pairs = [];
    for (let at = 0; at < flat.length; at += 2) pairs.push([opcodes[flat[at]], flat[at + 1]]);
    return pairs;
  }

  /** What became of a program on a target, which the text calls `target`. */
  function textOf({ verdict, kind, messages, opcodes, warnings }, target = "this target") {
    const code = opcodes?.map(([name, count]) => (count > 1 ? `${name} x${count}` : name)).join(" ");
    const told = {
      refused: `(${kind}): ${messages.join("; ")}`,
      accepted: "by the assembler, not disassembled",
      nothing: "left of it: no instruction",
    };
    const warned = warnings.map((text) => ` (warning: ${text})`).join("");
    return `${verdict} ${told[verdict] ?? code}${warned}`.replaceAll("{target}", target);
  }

  /**
   * The programs that a view leaves. A view is {targets, text, family, verdict}: only the outcomes on its targets are looked
   * at; each word of the text must be in the program's name or in one of these; verdict "divided" wants one of them accepted
   * and another one refused.
   */
  function search({ targets, programs }, view) {
    const shown = view.targets.map((target) => targets.indexOf(target));
    const words = view.text.toLowerCase().split(/\s+/).filter(Boolean);
    const answers = words.map(() => new Map()); // of an outcome to a word: the same outcome stands in many rows
    const says = (outcome, number) => {
      if (!answers[number].has(outcome)) answers[number].set(outcome, outcome.searched.includes(words[number]));
      return answers[number].get(outcome);
    };
    return programs.filter(({ family, searched, outcomes }) => {
      if (view.family && family !== view.family) return false;
      const seen = shown.map((column) => outcomes[column]);
      if (view.verdict && !hasVerdict(seen, view.verdict)) return false;
      return words.every((word, number) => searched.includes(word) || seen.some((outcome) => says(outcome, number)));
    });
  }

  function hasVerdict(outcomes, verdict) {
    if (verdict !== "divided") return outcomes.some((outcome) => outcome.verdict === verdict);
    return hasVerdict(outcomes, "refused") && outcomes.some((outcome) => outcome.verdict !== "refused");
  }

  /** [[outcome, its targets], ...] of one program, targets with the same outcome together. */
  function byOutcome({ targets }, program) {
    const groups = new Map();
    program.outcomes.forEach((outcome, column) => groups.set(outcome, [...(groups.get(outcome) ?? []), targets[column]]));
    return [...groups];
  }

  /** One flat row per program and target of a view, to be downloaded. */
  function cells({ release, targets }, programs, view) {
    return programs.flatMap(({ id, family, outcomes }) =>
      view.targets.map((target) => {
        const { verdict, kind, messages, opcodes, warnings } = outcomes[targets.indexOf(target)];
        const named = (texts) => texts.join("; ").replaceAll("{target}", target);
        return {
          ...{ release, program: id, family, target, verdict },
          error_kind: kind,
          error: kind === null ? null : named(messages),
          opcodes: opcodes === null ? null : opcodes.map(([name, count]) => `${name} x${count}`).join(" "),
          warnings: named(warnings) || null,
        };
      }),
    );
  }

  return { unpack, textOf, search, byOutcome, cells };
})();
