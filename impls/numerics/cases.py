"""The cases that every implementation is held against, by name. Importing this module imports no torch.

A case is a problem, the name of a function in `impls.numerics.values` that makes its data, and how the data lie in memory. What
the contract says may hold anything does hold something bad: NaN scales and code 0xF beyond a sequence's length and in unused
pages, table entries that name no page. Sizes are small, because Triton's interpreter runs them on a CPU, but for a few long
contexts that only a GPU runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from impls.contract import Paged, Problem

Placement = Literal["packed", "strided", "fused", "far"]


@dataclass(frozen=True)
class Case:
    """One problem and its data, the same bits on every machine."""

    name: str
    claim: str
    """What an implementation that passes gets right."""
    problem: Problem
    values: str = "bell"
    """Function of `impls.numerics.values` that makes q, K and V."""
    kv_lens: tuple[int, ...] | None = None
    k_global: float | None = None
    """Global scale of K; left out, amax / 2688."""
    v_global: float | None = None
    placement: Placement = "packed"
    """packed: contiguous. strided: axes in another order, with gaps. fused: codes and scales side by side in one row of bytes.
    far: pages more than 2^31 bytes apart."""
    segments: int = 0
    """Last output dims that each sum one range of tokens, for the error by position."""
    rows: int | None = None
    """Query rows, evenly spaced, that are compared; left out: all."""
    gpu_only: bool = False
    """Too long for an interpreter, and for the float64 attention of a machine that runs all cases."""
    quick: bool = False
    """One of the few that a quick look runs."""


def _problem(
    heads: tuple[int, int],
    lens: tuple[int, int],
    dims: int | tuple[int, int] = 64,
    *,
    batch: int = 1,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
    dtype: str = "bfloat16",
    v_block_axis: int = -1,
    paged: Paged | None = None,
    ragged: bool = False,
) -> Problem:
    """heads = (q_heads, kv_heads), lens = (q_len, kv_len), dims = head_dim or (head_dim, v_head_dim)."""
    head_dim, v_head_dim = dims if isinstance(dims, tuple) else (dims, dims)
    problem = Problem(
        batch=batch,
        q_heads=heads[0],
        kv_heads=heads[1],
        q_len=lens[0],
        kv_len=lens[1],
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        causal=causal,
        window=window,
        scale=scale,
        dtype=dtype,
        v_block_axis=v_block_axis,
        ragged=ragged or paged is not None,
    )
    return problem if paged is None else replace(problem, layout=paged)


def _ragged(name: str, claim: str, kv_lens: tuple[int, ...], heads: tuple[int, int], q_len: int, **rest: object) -> Case:
    """A case with a length for each sequence; the cache has room for 3 tokens more than the longest."""
    values, placement = str(rest.pop("values", "bell")), rest.pop("placement", "packed")
    paged = rest.get("paged")
    room = max(kv_lens) + 3
    if isinstance(paged, Paged):
        room = -(-room // paged.page_size) * paged.page_size
    problem = _problem(heads, (q_len, room), batch=len(kv_lens), ragged=True, **rest)  # type: ignore[arg-type]
    return Case(name, claim, problem, values, kv_lens, placement=placement)  # type: ignore[arg-type]


def _shapes() -> Iterator[Case]:
    yield Case("decode", "one query against a cache, grouped heads", _problem((8, 2), (1, 200), 128, batch=2), quick=True)
    yield Case("prefill", "queries against themselves", _problem((4, 2), (130, 130), 128), quick=True)
    yield Case("extend", "a few queries at the end of a cache", _problem((4, 1), (17, 145), 128), quick=True)
    yield Case("not-causal", "every query sees every key", _problem((2, 1), (70, 150), causal=False))
    for dim in (64, 80, 96, 128, 192, 256, 512):
        yield Case(f"head-dim-{dim}", f"head dim {dim}", _problem((2, 1), (5, 90), dim), quick=dim == 512)
    yield Case("v-head-dim-narrower", "V narrower than K", _problem((2, 1), (5, 90), (192, 128)))
    yield Case("v-head-dim-wider", "V wider than K", _problem((2, 1), (5, 90), (64, 256)))
    for group in (1, 2, 4, 6, 8, 16):
        yield Case(f"group-{group}", f"{group} query heads share a key head", _problem((2 * group, 2), (3, 70)))
    yield Case("float16", "float16 queries and outputs", _problem((4, 2), (9, 150), 128, dtype="float16"), quick=True)
    yield Case("float16-decode", "float16, one query", _problem((8, 2), (1, 200), 256, dtype="float16"))


def _masks() -> Iterator[Case]:
    yield Case("rows-see-nothing", "more queries than keys: first rows are 0, lse -inf", _problem((2, 1), (40, 24)), quick=True)
    yield Case("no-keys", "an empty cache: everything is 0, lse -inf", _problem((2, 1), (3, 0)))
    yield Case("window", "a window shorter than the cache", _problem((2, 1), (90, 150), window=32), quick=True)
    yield Case("window-decode", "a window that starts inside a tile", _problem((4, 1), (1, 700), window=90))
    yield Case("window-8-queries", "a window and a few queries", _problem((4, 2), (8, 200), window=50))
    yield Case("window-not-causal", "a window on the last keys for all", _problem((2, 1), (6, 150), window=40, causal=False))
    yield Case("window-of-1", "every query sees its own key alone", _problem((2, 1), (70, 70), window=1))
    for length in (63, 64, 65, 127, 128, 129):
        yield Case(f"causal-{length}", "a length at the edge of a tile", _problem((1, 1), (length, length)))
    for name, lens in (("square", (64, 64)), ("extend", (20, 64)), ("more-queries", (80, 64))):
        yield Case(
            f"identity-v-{name}",
            "V is the identity, so the output is P: masks are exact, columns in order",
            _problem((1, 1), lens, 64),
            "identity_v",
            quick=name == "extend",
        )
    yield Case("v-ones", "V = ones gives 1, equal keys give lse = s + ln n", _problem((2, 1), (130, 130)), "ones", quick=True)
    yield Case("structured-q", "V = ones under structured queries", _problem((2, 1), (64, 130), 128), "structured_q")


def _lengths() -> Iterator[Case]:
    yield _ragged("ragged", "a length for each sequence, one of them 0", (0, 1, 17, 100), (4, 2), 4)
    yield _ragged("ragged-boundaries", "lengths at the edges of tiles", (31, 32, 33, 63, 64, 65, 127, 128, 129), (1, 1), 5)
    claim = "V in blocks of tokens, cut inside a block and inside a byte"
    yield _ragged("ragged-v-tokens", claim, (0, 5, 47, 80), (2, 1), 3, v_block_axis=-2)
    yield _ragged("ragged-not-causal", "lengths without a causal mask", (0, 50, 90), (2, 1), 5, causal=False)
    yield _ragged("ragged-window", "lengths and a window", (3, 60, 150), (2, 1), 9, window=20)
    yield _ragged("empty-splits", "a cache split over programs, most of which see nothing", (5, 0, 1500), (2, 1), 1)
    yield Case("chunk-of-one-token", "a key more than chunks are long", _problem((2, 1), (1, 97)))
    claim = "lengths at the edges of chunks, and chunks that no token reaches"
    yield _ragged("ragged-chunks", claim, (0, 1, 48, 49, 53, 97, 150), (2, 1), 5)
    yield Case("window-over-chunks", "a window longer than a chunk", _problem((2, 1), (1, 200), window=120))
    claim = "the first queries see all keys before them, the others a window"
    yield Case("window-from-the-middle", claim, _problem((2, 1), (90, 150), window=100))
    yield Case("window-empty-splits", "a window that leaves splits empty", _problem((2, 1), (1, 2000), window=100))
    claim = "uneven chunks are merged by natural logarithms"
    yield Case("long-prefix-short-suffix", claim, _problem((2, 1), (4, 3136)), "suffix")


def _layouts() -> Iterator[Case]:
    yield Case("v-tokens", "V in blocks along the tokens", _problem((4, 2), (20, 149), v_block_axis=-2), quick=True)
    for order, size in (("HND", 16), ("NHD", 32)):
        paged = Paged(size, "HND" if order == "HND" else "NHD")
        for heads in (1, 2, 4, 8):
            name = f"paged-{order.lower()}-{heads}"
            yield _ragged(name, f"{order} pages, {heads} key heads", (70, 33), (heads, heads), 2, paged=paged)
        name = f"paged-{order.lower()}-v-tokens"
        yield _ragged(name, f"{order} pages, V along the tokens", (70, 33), (4, 2), 2, paged=paged, v_block_axis=-2)
    paged = Paged(64)
    yield _ragged("paged-prefill", "prefill out of pages; a sequence without any", (0, 130), (2, 1), 60, paged=paged)
    yield _ragged("paged-fused", "codes and scales in one row of a page", (70, 33), (4, 2), 3, paged=paged, placement="fused")
    paged = Paged(16)
    yield _ragged("paged-far", "pages more than 2^31 bytes apart", (30, 16), (2, 1), 2, paged=paged, placement="far")
    yield Case("strided", "token-major tensors with gaps", _problem((4, 2), (9, 100), batch=2), placement="strided", quick=True)
    yield Case("strided-256", "token-major, head dim 256", _problem((2, 1), (5, 90), 256, batch=2), placement="strided")
    yield Case(
        "strided-v-tokens", "token blocks with gaps", _problem((2, 1), (5, 96), batch=2, v_block_axis=-2), placement="strided"
    )


def _format() -> Iterator[Case]:
    readback = _problem((16, 1), (127, 127), window=1, scale=1.0)
    yield Case("all-codes", "all scale bytes with all codes: K through lse, V through out", readback, "all_codes", quick=True)
    yield Case("unique-blocks", "every (token, block) has a scale of its own", _problem((4, 1), (126, 126), window=1), "blocks")
    yield Case("nibbles", "even elements small, odd ones large", _problem((2, 1), (5, 90)), "nibbles", quick=True)
    tokens = _problem((2, 1), (5, 90), v_block_axis=-2)
    yield Case("nibbles-v-tokens", "even tokens small, odd ones large", tokens, "nibbles")
    yield Case("negative", "negative codes, negative zero among them", _problem((2, 1), (5, 90)), "negative")
    yield Case("zero-blocks", "blocks, rows, and a head of zeros", _problem((4, 2), (5, 90)), "zero_blocks")
    yield Case("outlier-channels", "a few channels 30 and 50 times the rest", _problem((4, 2), (5, 150), 128), "outliers")
    yield Case("softmax-scale", "a softmax scale that is not the default", _problem((2, 1), (9, 90), scale=0.31))
    yield Case("large-scores", "scores of hundreds", _problem((2, 1), (9, 150)), "large_scores")
    small = _problem((2, 1), (5, 90))
    yield Case("globals-differ", "K and V have global scales of their own", small, k_global=0.37, v_global=5.1)
    yield Case("globals-tiny-huge", "global scales 1e-30 of K, 1e30 of V", small, k_global=1e-30, v_global=1e30, quick=True)
    yield Case("globals-huge-tiny", "global scales 1e30 of K, 1e-30 of V", small, k_global=1e30, v_global=1e-30)
    yield Case("globals-small", "global scales 1e-6 and 1e-10", small, k_global=1e-6, v_global=1e-10)


def _sums() -> Iterator[Case]:
    for dtype in ("bfloat16", "float16"):
        problem = _problem((2, 1), (1, 300), dtype=dtype)
        claim = "keys 2^-26 as likely as the first one keep their weight"
        yield Case(f"sink-{dtype}", claim, problem, "sink", quick=dtype == "bfloat16")
    between = _problem((2, 1), (1, 300))
    yield Case("v-between", "V constant between two bfloat16 values is rounded to the nearest, once", between, "between")
    long = _problem((1, 1), (1, 131072), (16, 32), causal=True)
    yield Case("same-sign-v-131072", "a sum of 131072 values of one sign does not drift", long, "same_sign", segments=16)


def _long() -> Iterator[Case]:
    for name, claim, problem, rows in (
        ("long-decode", "one query against 131072 tokens", _problem((8, 2), (1, 131072), 128), None),
        ("long-decode-512", "one query against 131072 tokens, head dim 512", _problem((4, 1), (1, 131072), 512), None),
        ("long-extend", "64 queries at the end of 131072 tokens", _problem((4, 1), (64, 131072), 256), 8),
        ("long-prefill", "32768 queries against themselves", _problem((2, 1), (32768, 32768), 128), 16),
        ("long-tiles", "49153 queries against themselves", _problem((2, 1), (49153, 49153), 128), 16),
        ("long-prefill-512", "8192 queries against themselves, head dim 512", _problem((2, 1), (8192, 8192), 512), 16),
    ):
        yield Case(name, claim, problem, rows=rows, gpu_only=True)
    claim = "lengths at the edges of long chunks, and a chunk of one token"
    problem = _problem((4, 1), (8, 65537), 128, batch=5, ragged=True)
    yield Case("long-ragged", claim, problem, kv_lens=(0, 5, 32768, 32769, 65537), gpu_only=True)


CASES: dict[str, Case] = {
    case.name: case for family in (_shapes, _masks, _lengths, _layouts, _format, _sums, _long) for case in family()
}
"""By name, in the order of tables."""
