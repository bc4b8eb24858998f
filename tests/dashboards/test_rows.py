from __future__ import annotations

import json
from dataclasses import replace

from benchmarks.records import Cell, Numerics
from dashboards.rows import numerics_rows, sentence, timing_rows
from dashboards.scripts import packed, script
from tests.dashboards.synthetic import without_number


def timed(samples: tuple[float, ...], cell_id: str = "decode/a4q/d128/kv4096", **more: tuple[float, ...]) -> Cell:
    return Cell(id=cell_id, suite="latency", how="gpu", status="ok", series={"latency": samples, **more})


def errors(**changes: object) -> Cell:
    fields = dict.fromkeys(("error_over_bound", "relative_l2", "largest_row_error", "lse_error"), 0.5)
    numerics = Numerics(**{**fields, "magnitude_ratio": 1.0, "cosine": 1.0, **changes})  # type: ignore[arg-type]
    return Cell(id="numerics/a4q/causal", suite="numerics", how="cpu", status="ok", numerics=numerics)


def test_a_failed_cell_has_no_number() -> None:
    (row,) = timing_rows([without_number("decode/a4q/d128/kv4096", "oom", "out of memory.")])
    assert row["status"] == "oom" and row["sentence"] == "out of memory."
    assert not {"series", "median", "q25", "q75", "minimum", "samples"} & set(row)


def test_order_statistics_are_the_inclusive_quartiles() -> None:
    (row,) = timing_rows([timed((4.0, 1.0, 2.0, 3.0, 5.0))])
    assert (row["minimum"], row["q25"], row["median"], row["q75"], row["samples"]) == (1.0, 2.0, 3.0, 4.0, 5)


def test_one_sample_is_its_own_quartiles() -> None:
    (row,) = timing_rows([timed((2e-6,))])
    assert (row["q25"], row["median"], row["q75"]) == (2e-6, 2e-6, 2e-6)


def test_the_clock_is_its_median_and_its_ends() -> None:
    cell = replace(timed((1.0, 1.0, 1.0), eager=(2.0,)), clocks={"latency": (1980, 1700, 1965)})
    with_clock, without = timing_rows([cell])
    assert [with_clock[f"clock{which}_mhz"] for which in ("", "_low", "_high")] == [1965, 1700, 1980]
    assert not [name for name in without if name.startswith("clock")]


def test_each_series_says_what_a_call_does_takes_and_loses() -> None:
    work = {"flops": 10**15, "nvfp4_bytes": 9, "cache_bytes": 32, "workspace_bytes": 5}
    numerics = errors(exact_relative_l2=0.0123456789).numerics
    cell = replace(timed((1.0,), eager=(2.0,)), work=work, numerics=numerics, cache_layout="bfloat16 dense")
    for row in timing_rows([cell]):
        assert (row["flops"], row["nvfp4_bytes"], row["cache_bytes"]) == (10**15, 9, 32)
        assert (row["cache_layout"], row["exact_relative_l2"]) == ("bfloat16 dense", 0.0123457)


def test_an_unknown_error_or_amount_is_null_not_zero() -> None:
    (row,) = timing_rows([timed((1.0,))])
    assert row["exact_relative_l2"] is row["flops"] is row["nvfp4_bytes"] is None


def test_an_error_of_what_is_not_there_is_null_not_zero() -> None:
    cell = errors()
    assert cell.numerics is not None
    (row,) = numerics_rows([replace(cell, suite="projection", numerics=replace(cell.numerics, lse_error=None))])
    assert row["lse_error"] is None


def test_a_measured_cell_that_breaks_its_bound_is_wrong_in_every_series() -> None:
    wrong = errors(error_over_bound=3.0, verdict="the error is 3 x its bound.").numerics
    rows = timing_rows([replace(timed((1.0,), eager=(2.0,)), numerics=wrong)])
    assert [(row["status"], row["sentence"]) for row in rows] == [("wrong", "the error is 3 x its bound.")] * 2


def test_series_are_rows_of_their_own() -> None:
    rows = timing_rows([timed((1.0,), call=(2.0, 4.0))])
    assert {row["series"]: row["median"] for row in rows} == {"latency": 1.0, "call": 3.0}


def test_samples_are_not_shipped() -> None:
    (row,) = timing_rows([timed(tuple(float(x) for x in range(1000)))])
    assert len(json.dumps(row)) < 500


def test_tokens_are_told_from_the_other_parameters() -> None:
    head_dim, preset = timing_rows([timed((1.0,)), timed((1.0,), "decode/a4q/llama3-8b/kv131072")])
    assert (head_dim["point"], head_dim["kv_len"]) == ("d128", 4096)
    assert (preset["point"], preset["kv_len"]) == ("llama3-8b", 131072)


def test_rows_of_a_projection_are_told_from_its_weights() -> None:
    (row,) = timing_rows([replace(timed((1.0,)), id="projection/w4a16/4096x14336/m64", suite="projection")])
    assert (row["point"], row["kv_len"], row["rows"]) == ("4096x14336", None, 64)


def test_a_broken_bound_is_wrong_and_keeps_its_numbers() -> None:
    cell = errors(error_over_bound=3.0, verdict="the error is 3 x its bound.")
    assert (cell.verdict, sentence(cell)) == ("wrong", "the error is 3 x its bound.")
    (row,) = numerics_rows([cell])
    assert row["status"] == "wrong" and row["error_over_bound"] == 3.0


def test_an_infinite_error_survives_json() -> None:
    (row,) = numerics_rows([errors(error_over_bound=float("inf"), verdict="Inf in the output.")])
    assert json.loads(json.dumps(row, allow_nan=False))["error_over_bound"] == "inf"


def test_an_unknown_quantisation_error_is_null_not_zero() -> None:
    (row,) = numerics_rows([errors()])
    assert row["quantisation_relative_l2"] is None


def test_packed_rows_have_each_text_once() -> None:
    rows = [{"id": "a", "value": 1.5, "why": None}, {"id": "b", "value": "inf"}, {"id": "a", "value": None, "why": "x"}]
    assert packed(rows) == {
        "columns": ["id", "value", "why"],
        "texts": [["a", "b"], None, ["x"]],
        "rows": [[0, 1.5, None], [1, "inf", None], [0, None, 0]],
    }


def test_text_cannot_end_the_script_it_is_in() -> None:
    text = "</script><script>alert(1)</script>\u2028<!--"
    written = script("x", [{"sentence": text}]).decode("ascii")
    assert "<" not in written and "\u2028" not in written
    assert json.loads(written.removeprefix('nvfp4bench.receive("x", ').removesuffix(");\n")) == [{"sentence": text}]


def test_names_of_a_journal_are_never_keys() -> None:
    rows = timing_rows([timed((1.0,), __proto__=(2.0,))])
    assert {row["series"] for row in rows} == {"latency", "__proto__"}
    assert all("__proto__" not in row for row in rows)
