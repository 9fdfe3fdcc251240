"""CUDA streams of other libraries, as CuPy takes them."""

from typing import Any, NamedTuple


class Stream(NamedTuple):
    """Another library's stream, by CUDA's stream protocol."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


def stream_of(cupy: Any, address: int, device: int) -> Any:
    """Return CuPy's stream for another library's; ExternalStream is deprecated from CuPy 14 on."""
    from_external = getattr(cupy.cuda.Stream, "from_external", None)
    return cupy.cuda.ExternalStream(address, device) if from_external is None else from_external(Stream(address))
