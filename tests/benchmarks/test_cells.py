"""Ids name one cell each, quick ones come first, and no option finds nothing without saying so."""

from __future__ import annotations

import pytest

from benchmarks.cells import specs, workloads
from benchmarks.operations import operation_of
from benchmarks.records import CELL_ID, SUITES

ATTENTION = {name: name for name in ("triton", "torch-reference-bf16")}
PROJECTIONS = {name: name for name in ("w4a16", "torch-bf16-linear")}
LAYERS = {name: name for name in ("triton+w4a16", "sdpa-flash+torch-bf16-linear")}
IMPLS = {**ATTENTION, **PROJECTIONS, **LAYERS}


def test_ids_are_unique_and_read_as_the_contract_says():
    ids = [spec.id for spec in specs(IMPLS)]
    assert len(set(ids)) == len(ids)
    assert all(CELL_ID.fullmatch(cell_id) for cell_id in ids)
    assert "decode/triton/d128/kv131072" in ids
    assert "host/triton/d128/kv1024" in ids
    assert all(any(cell_id.startswith(f"{name}/") for cell_id in ids) for name in workloads())


def test_design_s_workloads_are_there():
    names = set(workloads())
    assert {"decode", "decode-b8", "decode-b32", "prefill"} <= names
    assert {f"decode-g{group}" for group in (1, 8, 16)} <= names
    assert {f"extend-q{q_len}" for q_len in (4, 16, 64, 512, 2048)} <= names
    decode = workloads()["decode"]
    assert {64, 512} <= set(decode.axes[0].values)
    assert {1024, 131072} <= set(decode.axes[1].values)


def test_quick_takes_the_shapes_that_decide_on_a_gpu():
    ids = {spec.id for spec in specs({"x": "x"}, ("latency",), quick=True)}
    assert ids == {
        *(f"decode/x/d{dim}/kv{kv_len}" for dim in (128, 512) for kv_len in (8192, 131072)),
        "decode-b32/x/d128/kv8192",
        *(f"prefill/x/d{dim}/kv8192" for dim in (128, 512)),
    }


def test_problems_are_those_of_their_names():
    found = workloads()
    assert found["decode-b32"].problem(128, 8192).batch == 32
    assert found["extend-q512"].problem(128, 4096).q_len == 512
    prefill = found["prefill"].problem(64, 4096)
    assert (prefill.q_len, prefill.kv_len, prefill.head_dim, prefill.v_head_dim, prefill.causal) == (4096, 4096, 64, 64, True)
    assert (prefill.q_heads, prefill.kv_heads) == (16, 16)
    decode = found["decode"].problem(64, 1024)
    assert (decode.q_heads, decode.kv_heads, decode.q_len) == (32, 8, 1)
    assert [found[f"decode-g{group}"].problem(128, 131072).group for group in (1, 8, 16)] == [1, 8, 16]


def test_quick_is_a_part_of_full_and_comes_first():
    quick, full = specs(IMPLS, quick=True), specs(IMPLS)
    assert 0 < len(quick) < len(full)
    assert [spec.id for spec in full[: len(quick)]] == [spec.id for spec in quick]
    assert {spec.suite for spec in quick} == set(SUITES)


def test_a_short_budget_leaves_no_implementation_and_no_workload_out():
    wanted = {(workload.name, impl) for workload in workloads().values() if workload.quick for impl in workload.done_by(IMPLS)}
    first = specs(IMPLS, quick=True)[: len(wanted)]
    assert {(spec.workload.name, spec.impl) for spec in first} == wanted
    assert {impl for _, impl in wanted} == {*ATTENTION, *PROJECTIONS, *LAYERS}


def test_a_pattern_selects_by_id():
    found = specs(IMPLS, pattern="decode*/triton/d64/*")
    assert {spec.workload.name for spec in found} == {"decode", "decode-b8", "decode-b32"}
    assert {spec.values[0] for spec in found} == {64}
    both = specs(IMPLS, pattern="decode/triton/d64/*,prefill/triton/d64/kv1024")
    assert {spec.workload.name for spec in both} == {"decode", "prefill"}


def test_globs_may_have_blanks_around_them_and_each_must_match():
    assert specs(IMPLS, pattern=" decode/triton/d64/* , prefill/triton/d64/kv1024 ") == specs(
        IMPLS, pattern="decode/triton/d64/*,prefill/triton/d64/kv1024"
    )
    with pytest.raises(ValueError, match=r"^no cell is called 'decode/triton/d65/\*'; ids read like"):
        specs(IMPLS, pattern="decode/triton/d64/*,decode/triton/d65/*")
    for pattern in ("", "decode/*,", "decode/*, ,host/*"):
        with pytest.raises(ValueError, match="is empty"):
            specs(IMPLS, pattern=pattern)


def test_the_longest_contexts_come_first_once_the_quick_cells_are_through():
    found = specs(IMPLS, pattern="decode/triton/*")
    assert [spec.values[1] for spec in found if not spec.quick] == sorted(
        (s.values[1] for s in found if not s.quick), reverse=True
    )
    assert [spec.quick for spec in found] == sorted((spec.quick for spec in found), reverse=True)


def test_each_operation_has_cells_of_those_who_do_it():
    ids = [spec.id for spec in specs(IMPLS)]
    assert {"projection/w4a16/4096x14336/m1", "projection/torch-bf16-linear/14336x4096/m4096"} <= set(ids)
    assert {"layer/triton+w4a16/llama-3-8b/kv8192", "layer-prefill/triton+w4a16/gemma-3-27b/kv8192"} <= set(ids)
    assert not [one for one in ids if one.startswith(("decode/w4a16", "projection/triton", "layer/w4a16", "numerics/w4a16"))]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("triton", "attention"),
        ("dual-chunk:triton", "attention"),
        ("w4a16", "projection"),
        ("triton+w4a16", "layer"),
        ("dual-chunk:triton+torch-bf16-linear", "layer"),
        ("a+b", "attention"),
        ("+w4a16", "attention"),
        ("my/file.py:Mine", "attention"),
    ],
)
def test_a_name_says_its_operation(name, operation):
    assert operation_of(name) == operation


def test_projections_and_layers_are_the_sizes_of_their_names():
    found = workloads()
    one = found["projection"].problem("4096x14336", 8)
    assert (one.rows, one.outputs, one.inputs) == (8, 14336, 4096)
    layer = found["layer"].problem("llama-3-8b", 8192)
    assert (layer.qkv.outputs, layer.qkv.inputs, layer.output.outputs, layer.output.inputs) == (6144, 4096, 4096, 4096)
    assert (layer.attention.q_len, layer.attention.kv_len, layer.attention.group) == (1, 8192, 4)
    assert found["layer-prefill"].problem("gemma-3-12b", 1024).qkv.rows == 1024


@pytest.mark.parametrize("options", [{"pattern": "nothing/*"}, {"pattern": "decode/*", "suites": ("host",)}])
def test_nothing_found_says_what_ids_look_like(options):
    with pytest.raises(ValueError, match=r"^no cell is called .*; ids read like .*host/triton/d64/kv1024"):
        specs(IMPLS, **options)
