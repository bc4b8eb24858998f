"""A capability guessed from a number is wrong: sm_100a comes after sm_90a and has no wgmma, sm_120a has no tcgen05."""

from __future__ import annotations

import pytest

from impls import arch
from impls.arch import ARCHES, CAPABILITIES, CPU, find, products
from impls.isa.catalogue import program
from impls.isa.result import load_committed
from impls.isa.toolchain import PINNED_RELEASE


@pytest.mark.parametrize(
    ("capability", "having"),
    [
        ("nvfp4_mma_sync", {"sm_120a", "sm_121a"}),
        ("nvfp4_tcgen05", {"sm_100a", "sm_103a", "sm_110a"}),
        ("tcgen05", {"sm_100a", "sm_103a", "sm_110a"}),
        ("wgmma", {"sm_90a"}),
        ("fp8_mma_sync", {"sm_89", "sm_120a", "sm_121a"}),
        ("cvt_to_e2m1", {"sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a"}),
        ("bulk_copy", {"sm_90a", "sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a"}),
        ("tma", {"sm_90a", "sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a"}),
        ("tma_multicast", {"sm_90a", "sm_100a", "sm_103a", "sm_110a"}),
        ("max_of_three", {"sm_100a", "sm_103a", "sm_110a"}),
        ("bf16_mma_sync", set(ARCHES)),
    ],
)
def test_hardware_that_executes_it(capability: str, having: set[str]) -> None:
    assert {name for name, one in ARCHES.items() if one.executes(capability)} == having


def test_an_emulated_instruction_is_accepted_but_not_executed() -> None:
    one = find("sm_90a")
    assert one.accepts("fp8_mma_sync")
    assert one.why_lacks("fp8_mma_sync") == (
        "sm_90a only emulates fp8 mma.sync: ptxas 13.0.88 builds it from other instructions."
    )
    assert one.why_lacks("nvfp4_mma_sync") == "sm_90a has no NVFP4 mma.sync: ptxas 13.0.88 refuses it for this target."
    assert one.why_lacks("wgmma") is None


def test_the_cpu_has_none_of_them() -> None:
    assert not any(CPU.accepts(capability) for capability in CAPABILITIES)
    assert CPU.why_lacks("tcgen05") == "cpu has no tcgen05.mma and tensor memory: it is no GPU."


def test_an_unknown_capability_raises() -> None:
    with pytest.raises(KeyError):
        find("sm_90a").accepts("nvfp5")


def test_capabilities_stand_on_programs_that_exist_and_on_the_release_kernels_are_compiled_with() -> None:
    for identity, _ in CAPABILITIES.values():
        assert program(identity).id == identity
    assert arch.PROBED_RELEASE == PINNED_RELEASE


@pytest.mark.parametrize("name", [name for name in ARCHES if name.endswith("a")])
def test_limits_are_those_the_assembler_enforces(name: str) -> None:
    limits = load_committed(PINNED_RELEASE).limits[name]
    one = ARCHES[name]
    assert limits["static_shared_bytes"] == one.shared_per_block
    assert limits["registers"] == one.registers_per_thread
    assert limits["threads_per_sm"] == 32 * one.warps_per_sm


def test_products_belong_to_architectures_and_name_their_source() -> None:
    for product in arch.PRODUCTS:
        assert product in products(ARCHES[product.arch])
        assert product.source
        assert product.dram_bytes_per_second > 1e11
    assert products(CPU) == ()


@pytest.mark.parametrize(
    ("name", "clock_hz"),
    [("A100 80 GB SXM", 1.41e9), ("H200 SXM", 1.83e9), ("GeForce RTX 5090", 2.407e9), ("RTX PRO 6000", 2.617e9)],
)
def test_the_clock_of_a_stated_peak_is_the_boost_clock_of_the_data_sheet(name: str, clock_hz: float) -> None:
    (product,) = (one for one in arch.PRODUCTS if one.name == name)
    assert product.clock_hz == pytest.approx(clock_hz, rel=0.01)


def test_a_clock_is_not_guessed() -> None:
    for product in arch.PRODUCTS:
        known = product.sms is not None and any("tensor" in pipe for pipe in ARCHES[product.arch].per_clock)
        assert (product.clock_hz is not None) == known, product.name
