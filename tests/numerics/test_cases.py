"""The cases are what they claim to be, the same bits everywhere, and cover the bugs that were met in public."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from benchmarks.records import CELL_ID
from impls.contract import Dense, Inputs, Paged
from impls.numerics.cases import CASES
from impls.numerics.data import NO_PAGE, POISON_SCALE, Data, build
from impls.numerics.values import Source
from impls.nvfp4 import NVFP4Tensor, dequantize
from impls.reference import Reference, reference_attention, visible_keys
from impls.validation import check_inputs

SMALL = [name for name, case in CASES.items() if not case.gpu_only and case.problem.kv_len < 100_000]

PUBLIC_BUGS = {
    "flashinfer-ai/flashinfer#3838": ("v-ones", "structured-q"),  # row sums halved, lse wrong, unseen by cosine
    "flashinfer-ai/flashinfer#4748": ("head-dim-64",),  # 53 % error at head dim 64
    "flashinfer-ai/flashinfer#4749": ("empty-splits", "long-prefix-short-suffix"),  # split-KV held to be corrupt
    "flashinfer-ai/flashinfer#4452": ("rows-see-nothing",),  # masked rows with a finite lse
    "flashinfer-ai/flashinfer#4051": ("empty-splits", "window-empty-splits", "no-keys"),  # merging empty states gives NaN
    "flashinfer-ai/flashinfer#3864": ("window-8-queries", "window"),  # local errors under a window
    "flashinfer-ai/flashinfer#1993": ("head-dim-256",),
    "flashinfer-ai/flashinfer#2207": ("head-dim-64", "head-dim-80", "head-dim-96", "head-dim-128", "head-dim-192"),
    "flashinfer-ai/flashinfer#2861": ("ragged", "ragged-v-tokens", "paged-hnd-1"),  # padding's scales leak NaN
    "flashinfer-ai/flashinfer#3130": ("paged-far",),  # page offsets overflow 32 bits
    "flashinfer-ai/flashinfer#4546": ("head-dim-512",),
    "vllm-project/vllm#50084": ("unique-blocks",),  # swizzled scales taken for linear ones
    "vllm-project/vllm#49012": tuple(f"paged-{order}-{heads}" for order in ("hnd", "nhd") for heads in (1, 2, 4, 8)),
    "vllm-project/vllm#46329": ("globals-differ",),  # a cache shared between layers read with scale 1
    "vllm-project/vllm#50427": ("paged-far",),
    "vllm-project/vllm#37464": ("globals-small", "globals-tiny-huge"),  # scales underflow
    "vllm-project/vllm#54974": ("globals-differ",),  # one global scale for q, k and v
    "hao-ai-lab/FastVideo#1492": ("identity-v-square",),  # rows of V permuted
    "hao-ai-lab/FastVideo#1506": ("identity-v-square", "identity-v-extend", "identity-v-more-queries"),
    "hao-ai-lab/FastVideo#1455": ("softmax-scale",),
    "thu-ml/SageAttention#388": ("same-sign-v-131072",),  # noise at long contexts
    "thu-ml/SageAttention#372": ("extend", "rows-see-nothing"),  # causal alignment where lengths differ
    "thu-ml/SageAttention#378": ("group-1", "group-2", "group-4", "group-6", "group-8", "group-16"),
    "sgl-project/sglang#23625": ("nibbles", "nibbles-v-tokens"),
    "NVIDIA/Model-Optimizer#1898": ("zero-blocks",),  # 0 / 0 in a block of zeros
    "modular/modular#6600": ("globals-differ",),  # a divisor taken for a multiplier
    "local-inference-lab/b12x#388": ("all-codes",),  # subnormal E4M3 scales
    "tile-ai/tilelang#2704": ("all-codes",),  # subnormal E2M1 codes
    "local-inference-lab/b12x#45": ("strided", "strided-v-tokens", "paged-fused"),
    "Dao-AILab/flash-attention#2553": ("outlier-channels", "negative"),  # wrong elements under a right norm
    "Dao-AILab/flash-attention#2665": ("strided-256",),
    "Dao-AILab/flash-attention#2329": tuple(f"causal-{n}" for n in (63, 64, 65, 127, 128, 129)),
    "NVIDIA/TransformerEngine#3528": ("prefill",),  # all-zero causal output
    "vllm-project/flash-attention#87": ("empty-splits", "decode"),  # lse under split-KV
    "sgl-project/sglang#40903": ("long-prefix-short-suffix",),  # lse of base 2 merged as natural
}
"""Bugs of other attention kernels that were reported in public, and the cases that would have shown them."""


@pytest.fixture(scope="module", params=SMALL)
def built(request: pytest.FixtureRequest) -> tuple[str, Data]:
    return request.param, build(CASES[request.param])


def test_every_public_bug_has_its_cases() -> None:
    assert {name for names in PUBLIC_BUGS.values() for name in names} <= set(CASES)


def test_names_can_be_part_of_a_cell_id() -> None:
    assert all(CELL_ID.fullmatch(f"numerics/triton/{name}") for name in CASES)


def test_contract_is_covered() -> None:
    """Every head dim, group, axis, layout, dtype and mask that the operation has is in some case."""
    problems = [case.problem for case in CASES.values()]
    assert {p.head_dim for p in problems} >= {64, 80, 96, 128, 192, 256, 512}
    assert {p.group for p in problems} >= {1, 2, 4, 6, 8, 16}
    assert {p.v_block_axis for p in problems} == {-1, -2}
    assert {p.dtype for p in problems} == {"bfloat16", "float16"}
    assert {p.causal for p in problems} == {True, False}
    assert any(p.head_dim > p.v_head_dim for p in problems) and any(p.head_dim < p.v_head_dim for p in problems)
    for order in ("HND", "NHD"):
        mine = [p for p in problems if isinstance(p.layout, Paged) and p.layout.order == order]
        assert {p.kv_heads for p in mine} >= {1, 2, 4, 8}
        assert {p.v_block_axis for p in mine} == {-1, -2}


def test_data_fit_their_problem(built: tuple[str, Data]) -> None:
    name, data = built
    check_inputs(CASES[name].problem, data.inputs)


def test_reference_is_finite_whatever_the_poison(built: tuple[str, Data]) -> None:
    name, data = built
    reference = reference_attention(CASES[name].problem, data.inputs)
    assert bool(torch.isfinite(reference.out).all())
    assert bool(torch.isfinite(reference.score).all())


@pytest.mark.parametrize("name", ["decode", "paged-hnd-1", "nibbles", "ragged-v-tokens"])
def test_data_are_the_same_each_time(name: str) -> None:
    assert fingerprint(build(CASES[name]).inputs) == fingerprint(build(CASES[name]).inputs)


def test_random_numbers_are_the_recorded_bits() -> None:
    source = Source("recorded")
    assert source.bell(4).view(torch.int32).tolist() == [-1100346598, 1065393294, -1078908258, -1082337603]
    assert source.permutation(6) == [2, 0, 5, 3, 4, 1]


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_data_are_the_same_on_another_instruction_set(capability: str) -> None:
    names = ["decode", "structured-q", "outlier-channels", "ragged-v-tokens", "globals-tiny-huge", "long-prefix-short-suffix"]
    program = f"from tests.numerics.test_cases import *\nfor n in {names}: print(fingerprint(build(CASES[n]).inputs))"
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}
    child = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert child.stdout.split() == [fingerprint(build(CASES[name]).inputs) for name in names]


def test_bell_has_mean_0_and_variance_1() -> None:
    numbers = Source("moments").bell(100_000).double()
    assert abs(float(numbers.mean())) < 0.01
    assert abs(float(numbers.var()) - 1) < 0.01


def test_ragged_caches_hold_nan_beyond_their_lengths() -> None:
    data = build(CASES["ragged"])
    assert data.inputs.kv_lens is not None
    for cache in (data.inputs.k4, data.inputs.v4):
        scales = cache.scales.view(torch.uint8)
        for sequence, tokens in enumerate(data.inputs.kv_lens.tolist()):
            assert bool((scales[sequence, :, tokens:] == POISON_SCALE).all())
            assert bool((scales[sequence, :, :tokens] < POISON_SCALE).all())


def test_token_blocks_are_poisoned_to_the_nibble() -> None:
    case = CASES["ragged-v-tokens"]
    inputs = build(case).inputs
    tokens = int(case.kv_lens[2])  # type: ignore[index]
    assert tokens % 2 == 1
    byte = inputs.v4.codes[2, :, :, tokens // 2]
    assert bool((byte >> 4 == 0xF).all())
    assert len(torch.unique(byte & 0xF)) > 1


def test_pages_are_shuffled_and_what_no_table_names_is_poison() -> None:
    inputs = build(CASES["paged-hnd-4"]).inputs
    assert inputs.block_table is not None
    used = [page for page in inputs.block_table.flatten().tolist() if page != NO_PAGE]
    assert used != sorted(used)
    unused = set(range(inputs.k4.shape[0])) - set(used)
    assert len(unused) == 1
    assert bool((inputs.k4.scales[unused.pop()].view(torch.uint8) == POISON_SCALE).all())
    assert NO_PAGE in inputs.block_table


@pytest.mark.parametrize("name", ["paged-hnd-4", "paged-nhd-4", "paged-hnd-v-tokens", "paged-nhd-v-tokens", "paged-fused"])
def test_pages_hold_what_the_dense_cache_held(name: str) -> None:
    """The reference reads pages and dense caches by different paths: both must see the same numbers. How they lie in memory may
    decide in what order a BLAS adds them: sums over keys and head dims may differ by half a unit for each term, in either.
    """
    case = CASES[name]
    dense_case = replace(case, problem=replace(case.problem, layout=Dense()), placement="packed")
    paged, dense = build(case), build(dense_case)
    got = reference_attention(case.problem, paged.inputs)
    wanted = reference_attention(dense_case.problem, dense.inputs)
    terms = case.problem.kv_len + case.problem.head_dim * wanted.score.unsqueeze(-1)
    assert bool(((got.out - wanted.out).abs() <= 2 * 2.0**-53 * terms * wanted.mass).all())


def test_far_pages_are_beyond_32_bits() -> None:
    codes = build(CASES["paged-far"]).inputs.k4.codes
    assert codes.shape[0] > 1
    assert codes.stride(0) * codes.element_size() >= 2**31


@pytest.mark.parametrize("name", ["strided", "strided-256", "strided-v-tokens"])
def test_strided_tensors_are_not_contiguous(name: str) -> None:
    inputs = build(CASES[name]).inputs
    for tensor in (inputs.q, *parts(inputs.k4), *parts(inputs.v4)):
        assert not tensor.is_contiguous()
        assert tensor.stride(-1) == 1


def test_identity_v_shows_the_weights() -> None:
    case = CASES["identity-v-extend"]
    reference = reference_attention(case.problem, build(case).inputs)
    first, last = visible_keys(case.problem, reference.rows, case.problem.kv_len)
    keys = torch.arange(case.problem.kv_len)
    visible = (keys >= first[:, None]) & (keys <= last[:, None])
    assert bool(((reference.out[0, 0] > 0) == visible).all())
    assert torch.allclose(reference.out.sum(-1), torch.ones(1, dtype=torch.float64))


def test_equal_keys_give_ones_and_the_logarithm_of_their_number() -> None:
    reference = _reference("v-ones")
    inputs = build(CASES["v-ones"]).inputs
    key = dequantize(inputs.k4, torch.float64)[0, 0, 0]
    score = inputs.q[0].double() @ key * 64**-0.5
    assert torch.allclose(reference.out, torch.ones(1, dtype=torch.float64))
    assert torch.allclose(reference.lse[0], score + torch.log(torch.arange(1, 131, dtype=torch.float64)))


def test_all_codes_reads_every_scale_byte_with_every_code() -> None:
    reference = _reference("all-codes")
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    e2m1 = torch.cat((magnitudes, -magnitudes))
    byte = torch.arange(127)
    exponent, mantissa = byte >> 3, (byte & 7).double()
    e4m3 = torch.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent.double() - 7))
    assert torch.equal(reference.lse[0], 16 * e2m1[:, None] * e4m3)
    assert torch.equal(reference.out[0, 0], (e4m3[:, None] * e2m1).repeat(1, 4))


def test_unique_blocks_differ_from_all_their_neighbours() -> None:
    scales = build(CASES["unique-blocks"]).inputs.v4.scales.view(torch.uint8)[0, 0].int()
    tokens, blocks = scales.shape
    for down in range(16):
        for right in range(1 - blocks, blocks):
            if (down, right) != (0, 0):
                here = scales[: tokens - down, max(-right, 0) : blocks - max(right, 0)]
                there = scales[down:, max(right, 0) : blocks - max(-right, 0)]
                assert bool((here != there).all())


def test_sink_leaves_the_tail_below_what_float16_holds() -> None:
    case = CASES["sink-float16"]
    reference = _reference(case.name)
    tail = torch.exp(-reference.lse)  # the tail's scores are 0
    assert float(tail.max()) < 2.0**-25
    half = case.problem.v_head_dim // 2
    assert bool((reference.out[..., :half] > 2.0**-14).all())  # a normal float16, made by the tail alone


def test_suffix_and_prefix_share_the_weight() -> None:
    """A merge that weighs one of them wrongly must show."""
    case = CASES["long-prefix-short-suffix"]
    data = build(case)
    whole = reference_attention(case.problem, data.inputs)
    assert bool((whole.mass.mean(-1) > 1.2 * whole.out.mean(-1).abs()).any())


def test_queries_make_a_difference_to_the_weights() -> None:
    """Uniform attention would hide wrong scores: in the random cases the largest weight is far above the mean."""
    reference = _reference("not-causal")
    assert float(reference.score.min()) > 2


def parts(t: NVFP4Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return t.codes, t.scales


def fingerprint(inputs: Inputs) -> str:
    """Hash of all tensors, as bits."""
    digest = hashlib.sha256()
    for t in (inputs.q, *parts(inputs.k4), *parts(inputs.v4), inputs.k4.global_scale, inputs.v4.global_scale):
        digest.update(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    for t in (inputs.kv_lens, inputs.block_table):
        digest.update(b"" if t is None else t.numpy().tobytes())
    return digest.hexdigest()


def _reference(name: str) -> Reference:
    return reference_attention(CASES[name].problem, build(CASES[name]).inputs)
