"""What a listing is read as: its loops, their instructions and products."""

import pytest

from cuda_ops import nvrtc, sass

LISTING = """
.text.f:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;
.L_x_1:
        /*0020*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*0030*/              @!P1 BRA `(.L_x_2) ;
        /*0040*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
.L_x_2:
        /*0050*/               @P0 BRA `(.L_x_1) ;
        /*0058*/                   CALL.REL.NOINC `($__internal_0) ;
        /*0060*/                   BRA.U UP0, `(.L_x_0) ;
        /*0070*/                   EXIT ;
.L_x_3:
        /*0080*/                   BRA `(.L_x_3);
        /*0090*/                   NOP;
"""


def test_loops_of_a_listing():
    inner, outer = sass.Loop(1, 4, 2, 2), sass.Loop(0, 7, 2, 0)
    assert sass.loops(LISTING) == [outer, inner]
    assert str(inner) == "4 / 2 = 2.0"
    assert len(sass.parse(LISTING)[0]) == 10


def test_a_call_within_a_kernel_is_a_jump():
    called = LISTING.replace("BRA.U UP0", "@P2 CALL.REL.NOINC").replace("CALL.REL.NOINC, `", "CALL.REL.NOINC `")
    assert sass.loops(called) == sass.loops(LISTING)


@pytest.mark.skipif(
    nvrtc.available() is not None or sass.disassembler() is None, reason="needs NVRTC and nvdisasm of the group cuda"
)
def test_a_kernel_is_listed():
    source = """extern "C" __global__ void f(float* x, int n) { for (int i = 0; i < n; ++i) x[i] += x[i / 2]; }
    extern "C" __global__ void g(float* x) { *x = 1.0f; }"""
    cubin = nvrtc.compile_source(source, (), 90).cubin
    names = [x.name for x in sass.parse(sass.listing(cubin, "g"))[0]]
    assert sum(name.startswith("STG") for name in names) == 1
    assert not any(name.startswith("LDG") for name in names)
    assert sass.loops(sass.listing(cubin, "f")) == []  # it has loops, but none that multiplies
