"""What each peer takes, and the sentence about what it does not take."""

from __future__ import annotations

import re

import pytest

from impls.arch import ARCHES, CPU, find
from impls.contract import Paged, Problem
from impls.peers import flashinfer_library, refusals
from impls.registry import BUILT_IN, implementation
from tests.peers.problems import PEERS, problem

HOPPER = find("sm_90a")
SDPA = PEERS[:3]
FLASHINFER = PEERS[3:]
EXTEND = {"q_len": 16}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if FlashInfer were here, which the refusals below do not depend on."""
    monkeypatch.setattr(flashinfer_library, "why_not", lambda: None)


def test_the_peers_are_in_the_registry() -> None:
    assert set(PEERS) <= set(BUILT_IN)


@pytest.mark.parametrize("name", PEERS)
def test_on_a_cpu_all_refuse_with_one_sentence(name: str) -> None:
    assert implementation(name).why_not(problem(), CPU) == refusals.NO_GPU


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"layout": Paged(64), "ragged": True}, refusals.NO_PAGES),
        ({"ragged": True}, refusals.NO_LENGTHS),
        ({"window": 32}, refusals.NO_WINDOW),
        ({"kv_len": 0, "causal": False}, refusals.NO_KEYS),
        ({"q_len": 201}, refusals.EMPTY_ROWS),
    ],
)
@pytest.mark.parametrize("name", PEERS)
def test_what_no_peer_does(name: str, changed: dict[str, object], sentence: str) -> None:
    assert implementation(name).why_not(problem(**changed), HOPPER) == sentence


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "head_dims"),
    [
        ("sdpa-flash", {64, 80, 96, 128, 192, 256}),
        ("sdpa-cudnn", {64, 80, 96, 128, 192, 256}),
        ("sdpa-efficient", {64, 80, 96, 128, 192, 256, 512}),
        ("flashinfer-bf16", {64, 128, 256, 512}),
        ("flashinfer-fa3-bf16", {64, 128, 256}),
        ("flashinfer-fp8", {64, 128, 256}),
        ("flashinfer-nvfp4-paged", {128, 256, 512}),
    ],
)
def test_head_dims(name: str, head_dims: set[int]) -> None:
    taken = set()
    for head_dim in (64, 80, 96, 128, 192, 256, 512):
        sentence = implementation(name).why_not(problem(head_dim=head_dim, **EXTEND, causal=False), HOPPER)
        if sentence is None:
            taken.add(head_dim)
        elif (name, head_dim) != ("flashinfer-nvfp4-paged", 64):
            assert re.search(rf"head dims .*not {head_dim}\.$", sentence)
    assert taken == head_dims


@pytest.mark.usefixtures("installed")
def test_an_nvfp4_cache_of_64_wide_heads_is_for_one_query() -> None:
    flashinfer = implementation("flashinfer-nvfp4-paged")
    assert flashinfer.why_not(problem(head_dim=64, q_len=1), HOPPER) is None
    assert "wrongly" in (flashinfer.why_not(problem(head_dim=64, q_len=2), HOPPER) or "")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("q_len", [1, 16, 200])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", PEERS)
def test_decode_extend_and_prefill(name: str, q_len: int, causal: bool) -> None:
    refused = {
        "sdpa-cudnn": causal and q_len == 16,  # its causal mask begins at the first key
        "flashinfer-fa3-bf16": q_len == 1,
    }.get(name, False)
    assert (implementation(name).why_not(problem(q_len=q_len, causal=causal), HOPPER) is not None) == refused


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", [name for name in PEERS if name != "sdpa-efficient"])
def test_one_head_dim_for_k_and_v(name: str) -> None:
    sentence = implementation(name).why_not(problem(head_dim=128, v_head_dim=64, q_len=200), HOPPER)
    assert sentence == "it is given one head dim for K and V, not 128 and 64."


@pytest.mark.usefixtures("installed")
def test_v_in_blocks_of_tokens_is_decoded_or_refused() -> None:
    asked = problem(v_block_axis=-2, **EXTEND, causal=False)
    refusing = [name for name in PEERS if implementation(name).why_not(asked, HOPPER) is not None]
    assert refusing == ["flashinfer-nvfp4-paged"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("arch", [name for name in ARCHES if name != "sm_90a"])
def test_what_is_for_hopper_alone(arch: str) -> None:
    fa3 = implementation("flashinfer-fa3-bf16").why_not(problem(**EXTEND), find(arch))
    assert fa3 == f"FlashInfer's FA3 kernels are for sm_90a alone, not for {arch}."
    cudnn = implementation("sdpa-cudnn")
    assert cudnn.why_not(problem(head_dim=128), find(arch)) is None
    assert cudnn.why_not(problem(head_dim=256), find(arch)) is not None


@pytest.mark.parametrize("name", FLASHINFER)
def test_without_flashinfer_it_says_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer_library, "version", _absent)
    wanted = "flashinfer is not installed; pip install flashinfer-python==0.7.0."
    assert implementation(name).why_not(problem(), HOPPER) == wanted


def _absent(name: str) -> str:
    raise flashinfer_library.PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"version": lambda name: "0.6.18"}, "flashinfer 0.6.18 is too old; pip install flashinfer-python==0.7.0."),
        ({"find_spec": lambda name: None}, r"flashinfer lacks apache-tvm-ffi, .*"),
        ({"_tool": lambda name, folder: None if name == "nvcc" else name}, r".* no nvcc on PATH .*"),
        ({"_tool": lambda name, folder: None if name == "ninja" else name}, r".* with ninja, which is not installed; .*"),
        ({}, None),
        ({"version": lambda name: "0.7.0.post1"}, None),
        ({"version": lambda name: "1.0"}, None),
    ],
)
def test_what_flashinfer_itself_needs(changed, sentence, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"version": lambda name: "0.7.0", "find_spec": lambda name: name, "_tool": lambda name, folder: name}
    for name, answer in {**found, **changed}.items():
        monkeypatch.setattr(flashinfer_library, name, answer)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    answer = flashinfer_library.why_not()
    assert answer is None if sentence is None else re.fullmatch(sentence, answer)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", PEERS)
def test_declared_roundings(name: str, dtype: str) -> None:
    rounds = {operand: rounding.name for operand, rounding in implementation(name).rounds(problem(dtype=dtype)).items()}
    p = "float16_unbiased" if dtype == "float16" else "bfloat16"
    cache = {"flashinfer-fp8": "float8_e4m3", "flashinfer-nvfp4-paged": None}.get(name, dtype)
    assert rounds == ({"p": p} if cache is None else {"k": cache, "v": cache, "p": p})


def test_a_process_compiles_for_one_list_of_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_JOBS", "1"), ("PATH", "")):  # put back what the call may change
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(flashinfer_library.ARCH_LIST, "9.0a 10.0a")
    flashinfer_library._target(HOPPER)
    assert flashinfer_library.os.environ[flashinfer_library.ARCH_LIST] == "9.0a 10.0a"
    with pytest.raises(ValueError, match=r"^this process compiles FlashInfer's kernels for 9\.0a 10\.0a .* not for sm_120a"):
        flashinfer_library._target(find("sm_120a"))


def test_accumulator_chain_is_the_whole_context() -> None:
    asked: Problem = problem(kv_len=131072)
    assert {implementation(name).accumulator_chain(asked) for name in PEERS} == {131072}
