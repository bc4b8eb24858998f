"""The committed results, against the ptxas that is installed and against what is known of the targets from elsewhere."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

import pytest

from impls.host import usable_cores
from impls.isa import result, toolchain
from impls.isa.assemble import assemble
from impls.isa.cache import Cache
from impls.isa.catalogue import catalogue, groups, program
from impls.isa.diagnostics import KINDS
from impls.isa.limits import find_limits
from impls.isa.probe import Prober
from impls.isa.processes import Processes
from impls.isa.program import digest
from impls.isa.result import Cell
from impls.isa.sass import lowering
from impls.isa.toolchain import PINNED_RELEASE, Assembler

SAMPLED_TARGETS = ("sm_80", "sm_90a", "sm_100f", "sm_100a", "sm_110a", "sm_120", "sm_120a", "sm_121a")

DATACENTER = ("sm_100a", "sm_103a", "sm_110a")
CONSUMER = ("sm_120a", "sm_121a")
NVFP4_MMA = "mma.sync/mxf4nvf4/m16n8k64/scale_vec::4X/ue4m3/f32"
FP8_MMA = "mma.sync/fp8/m16n8k32/e4m3/e4m3/f32"


@functools.cache
def committed(release: str = PINNED_RELEASE) -> result.Probe:
    return result.load_committed(release)


def installed() -> list[Assembler]:
    """The assemblers that are here and whose result is committed."""
    found = [one for one in toolchain.assemblers(Processes()) if one.release in result.committed()]
    if not found:
        pytest.skip("no ptxas is here whose result is committed")
    return found


def code(cell: Cell) -> set[str]:
    """Opcodes without their modifiers."""
    return {opcode.split(".")[0] for opcode in cell.opcodes or {}}


@pytest.mark.parametrize("release", result.committed())
def test_the_result_covers_the_catalogue(release: str) -> None:
    probe = committed(release)
    assert set(probe.cells) == {one.id for one in catalogue()}
    assert probe.programs == digest(catalogue()), "programs have changed: nvfp4bench isa --release ... --update"
    assert all(set(row) == set(probe.targets) for row in probe.cells.values())
    kinds = {cell.error.kind for _, _, cell in probe.rows() if cell.error}
    assert kinds <= KINDS.keys(), "a refusal of no known kind, a crash or a timeout"


def test_a_sample_agrees_with_the_installed_ptxas() -> None:
    """Every 97th program, alone in its module: the committed verdicts came from modules of hundreds."""
    processes = Processes(60.0)
    sample = catalogue()[::97]
    assert len(sample) > 40
    for assembler in installed():
        for target in SAMPLED_TARGETS:
            expected = committed(assembler.release).cells
            refused = [one for one in sample if not expected[one.id][target].accepted]
            accepted = [one for one in sample if expected[one.id][target].accepted]
            for one in refused[::4]:
                found = assemble([one], target, assembler, None, processes)[one.id]
                assert found.error == expected[one.id][target].error, (assembler.release, target, one.id)
            together = assemble(accepted, target, assembler, None, processes)
            assert all(cell.accepted for cell in together.values()), (assembler.release, target)


def test_opcodes_agree_with_the_installed_tools() -> None:
    processes = Processes(60.0)
    disassembler = toolchain.disassembler(processes)
    if disassembler is None or disassembler.release != committed().disassembler:
        pytest.skip("another disassembler may name opcodes otherwise")
    assembler = installed()[0]
    sample = [program(name) for name in (NVFP4_MMA, FP8_MMA, "movmatrix", "tcgen05.ld/32x32b/x4/-")]
    for target in ("sm_90a", *DATACENTER, *CONSUMER):
        found = assemble(sample, target, assembler, disassembler, processes)
        expected = committed(assembler.release).cells
        assert {name: cell.opcodes for name, cell in found.items()} == {
            one.id: expected[one.id][target].opcodes for one in sample
        }


def test_limits_agree_with_the_installed_ptxas() -> None:
    assembler = installed()[0]
    for target in ("sm_100a", "sm_120a"):
        assert find_limits(target, assembler, Processes(60.0)) == committed(assembler.release).limits[target]


TRIED = ("sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_103a", "sm_110a", "sm_120", "sm_120f", "sm_120a", "sm_121a")
"""Targets for which single instructions were tried by hand with ptxas 13.0."""
BLACKWELL = TRIED[2:]
FAMILY_OR_ARCH = ("sm_100f", "sm_100a", "sm_103a", "sm_110a", "sm_120f", "sm_120a", "sm_121a")
TCGEN05 = ("sm_100f", "sm_100a", "sm_103a", "sm_110a")
BLOCK_SCALED = ("sm_120f", "sm_120a", "sm_121a")

KNOWN = {
    TRIED: (
        "mma.sync/bf16/m16n8k16",
        FP8_MMA,
        "ldmatrix/m8n8/x4/-/shared",
        "movmatrix",
        "cvt/f32-to-pair/e4m3x2/rn/satfinite/-",
        "cp.async/cg/16/-/-",
        "cp.async.bulk.tensor/multicast/2d/tile/shared::cluster/-",
        "cluster/entry/16",
        "elect.sync/-1",
        "griddepcontrol/wait",
        "fence.proxy/async",
    ),
    BLACKWELL: (
        "f32x2/fma/rn/-",
        "minmax/f32x3/max/-/NaN/-",
        "arithmetic/mixed/add/bf16/rn/-",
        "ld.global/global/-/v8.b32",
        "st.bulk/-/shared::cta",
        "clusterlaunchcontrol.try_cancel/-",
    ),
    FAMILY_OR_ARCH: (
        "cvt/f32-to-pair/e2m1x2/rn/satfinite/-",
        "cvt/pair-to-halves/e2m1x2/f16x2/-",
        "cvt/f32-to-pair/ue8m0x2/rz/-/-",
        "ldmatrix/m16n16/x1/trans/-",
        "ldmatrix/m8n16/x1/-/b8x16.b4x16_p64",
        "stmatrix/m16n8/x1/trans",
        "mma.sync/f8f6f4/m16n8k32/e4m3/e4m3/f32",
        "clusterlaunchcontrol.try_cancel/multicast::cluster::all",
    ),
    ("sm_90a", *FAMILY_OR_ARCH): ("setmaxnreg/dec/24", "tensormap.replace/global_address/global"),
    BLOCK_SCALED: (
        NVFP4_MMA,
        "mma.sync/mxf4nvf4/m16n8k64/scale_vec::2X/ue8m0/f32",
        "mma.sync/mxf4/m16n8k64/scale_vec::2X/ue8m0/f32",
        "mma.sync/mxf8f6f4/e2m1/e4m3/scale_vec::1X/ue8m0",
        "mma.sync/f8f6f4/m16n8k32/e2m1/e3m2/f32",
    ),
    ("sm_120a", "sm_121a"): ("mma.sp/fp4/mma.sp::ordered_metadata/mxf4nvf4/4X/ue4m3",),
    ("sm_90a",): ("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group/0", "wgmma/64/f32.bf16.bf16/shared"),
    TCGEN05: (
        "tcgen05.alloc/cta_group::1/32",
        "tcgen05.dealloc/cta_group::1/32",
        "tcgen05.mma/cta_group::1/f16/shared/-/-",
        "tcgen05.mma/cta_group::1/tf32/tmem/-/-",
        "tcgen05.mma/cta_group::2/f8f6f4/shared/-/-",
        "tcgen05.mma.ws/f16/shared/-/-",
        "tcgen05.mma/block-scaled/cta_group::1/mxf4nvf4/shared/-/block16",
        "tcgen05.ld/16x256b/x1/-",
        "tcgen05.st/32x32b/x1/-",
        "tcgen05.cp/cta_group::1/32x128b.warpx4/-",
        "tcgen05.commit/cta_group::1/-/-",
        "tcgen05.fence/after_thread_sync",
        "cp.async.bulk.tensor/load/2d/tile/shared::cluster/cta_group::1",
    ),
    ("sm_100a", "sm_103a", "sm_110a"): (
        "tcgen05.mma/block-scaled/cta_group::1/mxf4nvf4/shared/-/scale_vec::4X",
        "tcgen05.mma/block-scaled/cta_group::1/mxf4/shared/-/scale_vec::2X",
        "tcgen05.mma/block-scaled/cta_group::1/mxf8f6f4/shared/-/scale_vec::1X",
        "tcgen05.shift/cta_group::1",
    ),
    ("sm_100f", "sm_100a", "sm_103a"): ("redux.sync/f32/max/f32", "tcgen05.mma/scale-input/cta_group::1/f16/shared"),
    ("sm_100a", "sm_103a"): ("cvt/stochastic-quad/e2m1x4/-/satfinite", "cvt/stochastic-pair/f16x2/-/-"),
    ("sm_100a", "sm_110a"): ("tcgen05.mma/cta_group::1/i8/shared/-/-",),
    ("sm_103a", "sm_110a"): ("tcgen05.ld.red/32x32b/x2/max/f32",),
    (): (
        "mma.sync/mxf4nvf4/m16n8k64/scale_vec::4X/ue8m0/f32",
        "mma.sync/mxf4nvf4/m16n8k64/scale_vec::2X/ue4m3/f32",
        "cvt/f32-to-pair/ue4m3x2/rn/satfinite/-",
        "tcgen05.alloc/cta_group::1/48",
    ),
}
"""{targets: programs that exactly these of `TRIED` accept}."""


@pytest.mark.parametrize(("targets", "name"), [(targets, name) for targets, names in KNOWN.items() for name in names])
def test_what_was_tried_by_hand_holds(targets: tuple[str, ...], name: str) -> None:
    row = committed().cells[name]
    assert tuple(target for target in TRIED if row[target].accepted) == targets


@pytest.mark.parametrize("target", CONSUMER)
def test_nvfp4_is_native_on_consumer_blackwell(target: str) -> None:
    assert code(committed().cells[NVFP4_MMA][target]) == {"OMMA"}


@pytest.mark.parametrize("target", DATACENTER)
def test_nvfp4_is_native_on_datacenter_blackwell(target: str) -> None:
    name = "tcgen05.mma/block-scaled/cta_group::1/mxf4nvf4/shared/-/block16"
    assert "UTCOMMA" in code(committed().cells[name][target])


@pytest.mark.parametrize("target", ["sm_90a", *DATACENTER])
def test_fp8_mma_is_emulated_with_f16(target: str) -> None:
    cell = committed().cells[FP8_MMA][target]
    assert code(cell) >= {"F2FP", "HMMA"}
    assert lowering(program(FP8_MMA).native, cell.opcodes or {}) == "emulated"


@pytest.mark.parametrize("target", ["sm_89", *CONSUMER])
def test_fp8_mma_is_native(target: str) -> None:
    assert code(committed().cells[FP8_MMA][target]) == {"QMMA"}


def test_limits_are_those_the_architectures_are_known_for() -> None:
    limits = committed().limits
    assert {target: limits[target]["static_shared_bytes"] for target in ("sm_90a", *DATACENTER, *CONSUMER, "sm_120")} == {
        **dict.fromkeys(("sm_90a", *DATACENTER), 227 * 1024),
        **dict.fromkeys(CONSUMER, 99 * 1024),
        "sm_120": 48 * 1024,
    }
    assert {limits[target]["tmem_columns"] for target in DATACENTER} == {512}
    assert {limits[target]["tmem_columns"] for target in CONSUMER} == {0}
    assert {found["registers"] for found in limits.values()} == {255}


def test_no_text_names_a_folder_of_the_machine_it_was_made_on() -> None:
    for release in result.committed():
        text = (result.PROBES / f"{release}.json").read_text()
        assert not re.search(r"/(tmp|home|root|usr)/", text)


@pytest.mark.slow
def test_the_whole_catalogue_on_three_targets_agrees_and_is_within_its_time(tmp_path: Path) -> None:
    """All targets may take ten minutes on two cores, five seconds from the cache. Processor time, so that load is no fault."""
    targets = ("sm_90a", "sm_100a", "sm_120a")
    processes = Processes(60.0)
    assembler = installed()[0]
    disassembler = toolchain.disassembler(processes)
    prober = Prober(assembler, disassembler, store=Cache(tmp_path), processes=processes, jobs=usable_cores())
    started = processor_seconds()
    found = prober.probe(groups(), targets)
    share = len(targets) / len(assembler.targets)
    assert processor_seconds() - started < 2 * 600 * share
    expected = committed(assembler.release)
    for name, target, cell in found.rows():
        assert cell.error == expected.cells[name][target].error, (name, target)
    assert found.limits == {target: expected.limits[target] for target in targets}
    started = processor_seconds()
    assert prober.probe(groups(), targets) == found
    assert processor_seconds() - started < 5


def processor_seconds() -> float:
    """Used so far by this process and the ones it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
