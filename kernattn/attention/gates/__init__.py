"""Members of gated linear attention: each function returns arguments of `gated_linear_attention` by name."""

from kernattn._arrays.graphs import traceable_member
from kernattn.attention.gates._decays import gla, hgrn2, lightning, mamba2, retention, rwkv6, softplus
from kernattn.attention.gates._rules import delta_net, delta_product, gdn2, kda, rwkv7

__all__ = [
    "delta_net",
    "delta_product",
    "gdn2",
    "gla",
    "hgrn2",
    "kda",
    "lightning",
    "mamba2",
    "retention",
    "rwkv6",
    "rwkv7",
    "softplus",
]


def __dir__() -> list[str]:
    return __all__


for _name in __all__:
    traceable_member(_name)(globals()[_name])
