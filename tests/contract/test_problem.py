"""A problem that makes no sense is refused when it is stated, in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from impls.contract import Dense, Paged, Problem, Rounding

GOOD: dict[str, Any] = {
    "batch": 2,
    "q_heads": 8,
    "kv_heads": 2,
    "q_len": 4,
    "kv_len": 100,
    "head_dim": 64,
    "v_head_dim": 48,
}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        *(({name: 0}, f"{name} must be at least 1, not 0.") for name in GOOD if name != "kv_len"),
        ({"batch": -3}, "batch must be at least 1, not -3."),
        *(
            ({name: value}, f"{name} must be a whole number below 2^31, not {value!r}.")
            for name in ("batch", "kv_len", "head_dim")
            for value in (1.5, "16", None, True, 2**31)
        ),
        ({"causal": "no"}, "causal must be True or False, not 'no'."),
        ({"causal": None}, "causal must be True or False, not None."),
        ({"window": True}, "window must be a whole number of at least 1, not True."),
        ({"window": 10**30}, f"window must be a whole number of at least 1, not {10**30}."),
        ({"scale": "1"}, "scale must be a positive finite number, not '1'."),
        ({"scale": 1e300}, "scale must be a normal number of float32, which kernels take it as, not 1e+300."),
        ({"scale": 1e-300}, "scale must be a normal number of float32, which kernels take it as, not 1e-300."),
        ({"scale": True}, "scale must be a positive finite number, not True."),
        ({"scale": 2**200}, f"scale must be a normal number of float32, which kernels take it as, not {2.0**200!r}."),
        ({"scale": 10**5000}, "scale must be a positive finite number, not a whole number beyond every float."),
        ({"scale": -(10**5000)}, "scale must be a positive finite number, not a whole number beyond every float."),
        ({"kv_len": -1}, "kv_len must not be negative, and is -1."),
        ({"head_dim": 72}, "head_dim must be a multiple of 16 (an NVFP4 block), not 72."),
        ({"v_head_dim": 8}, "v_head_dim must be a multiple of 16 (an NVFP4 block), not 8."),
        ({"q_heads": 9}, "q_heads must be a multiple of kv_heads, and 9 is not one of 2."),
        ({"q_heads": 1}, "q_heads must be a multiple of kv_heads, and 1 is not one of 2."),
        ({"window": 0}, "window must be a whole number of at least 1, not 0."),
        ({"window": 1.5}, "window must be a whole number of at least 1, not 1.5."),
        ({"layout": "paged"}, "layout must be Dense() or Paged(page_size), not 'paged'."),
        *(
            ({"scale": scale}, f"scale must be a positive finite number, not {scale}.")
            for scale in (0.0, -0.1, float("inf"), float("nan"))
        ),
        ({"dtype": "float32"}, "q must be one of bfloat16, float16, not float32."),
        ({"v_block_axis": -3}, "v_block_axis is -1 (head dim) or -2 (tokens), not -3."),
        ({"v_block_axis": 1}, "v_block_axis is -1 (head dim) or -2 (tokens), not 1."),
    ],
)
def test_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        Problem(**{**GOOD, **changes})
    assert str(caught.value) == sentence


@pytest.mark.parametrize("size", [0, -16, 8, 24, 16.0, "16", True, 2**32])
def test_page_sizes_that_are_refused(size: Any) -> None:
    with pytest.raises(ValueError, match=rf"^page_size must be a positive multiple of 16, not {size!r}\.$"):
        Paged(size)


def test_page_orders_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^the order of a page is HND or NHD, not 'hnd'\.$"):
        Paged(16, "hnd")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sinks", "softcap", "mask"])
def test_unknown_options_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        Problem(**{**GOOD, name: None})


def test_what_a_problem_says_of_itself() -> None:
    problem = Problem(**GOOD)
    assert problem.softmax_scale == 0.125
    assert Problem(**GOOD, scale=0.3).softmax_scale == 0.3
    whole = Problem(**GOOD, scale=2**70).softmax_scale
    assert (whole, type(whole)) == (2.0**70, float)
    assert problem.group == 4
    assert problem.kv_bytes == 2 * 2 * 100 * (64 + 48) // 2 + 2 * 2 * 100 * (4 + 3)  # codes, then scales
    assert problem.layout == Dense()
    assert Problem(**GOOD) == problem
    assert hash(Problem(**GOOD, layout=Paged(16))) != hash(problem)


def test_unit_roundoff_is_the_largest_relative_error_of_a_rounding() -> None:
    """1 + u lies in the middle of 1 and the next number: it is off by u / (1 + u), the largest there is."""
    assert Rounding("exact").unit_roundoff == 0
    next_to_one = {"bfloat16": 1 + 2**-7, "float16": 1 + 2**-10, "float8_e4m3": 1.125, "nvfp4": 1.5}
    next_to_one["float16_unbiased"] = next_to_one["float16"]
    for name, value in next_to_one.items():
        assert 1 + 2 * Rounding(name).unit_roundoff == value
