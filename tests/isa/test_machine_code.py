"""Counting the scaffold, or a pattern that matches too much, would call an emulation native."""

from __future__ import annotations

from impls.isa.sass import all_opcodes, local_traffic, lowering, opcodes

DISASSEMBLY = """
	.target	sm_90a
//--------------------- .text.p1 --------------------------
	.section	.text.p1,"ax",@progbits
.text.p1:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   ULDC.64 UR4, c[0x0][0x208] ;
        /*0020*/                   LD.E.STRONG.SYS R4, desc[UR4][R2.64] ;
        /*0030*/                   HFMA2.MMA R5, -RZ, RZ, 0, 0 ;
        /*0040*/                   HFMA2 R6, R4, R4, R4 ;
        /*0050*/              @!P0 F2FP.F16.E4M3.UNPACK_B R8, R4 ;
        /*0060*/                   F2FP.F16.E4M3.UNPACK_B R9, R4.H1 ;
        /*0070*/                   HMMA.16816.F32 R4, R8, R8, R4 ;
.L_x_1:
        /*0080*/               @P1 BRA `(.L_x_1) ;
        /*0090*/                   LDG.E.STRONG.SYS R4, desc[UR4][R2.64] ;
        /*00a0*/                   ST.E.128.STRONG.SYS desc[UR4][R2.64], R4 ;
        /*00b0*/                   EXIT ;
.L_x_0:
        /*00c0*/                   BRA `(.L_x_0);
        /*00d0*/                   NOP;
.text.p0:
        /*0000*/                   EXIT ;
"""


def test_only_what_the_instruction_became_is_counted() -> None:
    found = opcodes(DISASSEMBLY.replace("@P1 BRA `(.L_x_1)", "@P1 BRA `(.L_x_2)"))
    assert found == {
        "p0": {},
        "p1": {"HFMA2": 1, "F2FP.F16.E4M3.UNPACK_B": 2, "HMMA.16816.F32": 1, "BRA": 1, "LDG.E.STRONG.SYS": 1},
    }


def test_verdict_follows_the_unit_of_the_operation() -> None:
    assert lowering("QMMA", {"QMMA.16832.F32": 1}) == "native"
    assert lowering("QMMA", {"F2FP.F16.E4M3.UNPACK_B": 6, "HMMA.16816.F32": 2}) == "emulated"
    assert lowering("QMMA", {"UTCQMMA": 1}) == "emulated"  # a pattern matches from the start of an opcode
    assert lowering("QMMA", {}) == "nothing"


def test_of_a_kernel_all_is_counted_but_what_pads_it() -> None:
    found = all_opcodes(DISASSEMBLY, "p1")
    assert found["LDC"] == found["ULDC.64"] == found["LD.E.STRONG.SYS"] == 1
    assert "NOP" not in found
    assert sum(found.values()) == 11
    assert list(found) == sorted(found)
    assert all_opcodes(DISASSEMBLY, "p0") == {"EXIT": 1}


def test_bytes_of_spills_follow_the_width_of_the_access() -> None:
    assert local_traffic({"STL": 1, "STL.64": 2, "LDL.LU.128": 1, "LDL.U8": 3, "STL.S16": 1}) == 4 + 16 + 16 + 3 + 2
    assert local_traffic({"LDG.E.128": 5, "STS.64": 5, "LDLX": 1}) == 0
