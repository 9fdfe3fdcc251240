"""The derivative of every kind, on the emulation, against central differences of its formula."""

from pathlib import Path

import numpy as np

from cuda_on_cpu import RawModule
from kernattn.ops._cuda import sources
from seam import KINDS, PULLED


def test_derivatives(cupy):
    names = (*sources.TYPES, "_cuda/kinds.cuh")
    code = "".join((sources.OPS / name).read_text() for name in names)
    code += Path(__file__).with_name("kinds.cu").read_text()
    defines = ("-DINPUT=double", "-DOPERAND=double", "-DSPLIT=0", "-DWARPS=1", "-DKIND=elu1")
    function = RawModule(code=code, options=defines).get_function("every_kind")
    u, step = np.linspace(-3, 3, 24), 1e-6  # 0, where relu has none, is not among them

    def run(u, kind):
        y, dy = np.full((2, kind.parts, u.size), np.nan)
        function((1,), (32,), (u, y, dy, np.int32(kind.number), np.int32(u.size)))
        assert np.isfinite([y, dy]).all(), f"kinds.cu has no line for {kind.name}"
        return y, dy

    for kind in (KINDS[name] for name in PULLED):
        (up, _), (down, _), (_, found) = (run(x, kind) for x in (u + step, u - step, u))
        np.testing.assert_allclose(found, (up - down) / (2 * step), atol=1e-9, err_msg=kind.name)
