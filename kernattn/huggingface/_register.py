"""The names under which transformers finds attention by kernattn."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from transformers import AttentionInterface, AttentionMaskInterface

from kernattn._runtime.checks import positive_integer, shown
from kernattn._runtime.deprecated import old_arguments
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.huggingface._attention import Favor, exact_attention
from kernattn.huggingface._masks import make_key_mask
from kernattn.huggingface._settings import DEFAULTS


@old_arguments(seed="rng")
def register(
    num_features: int | None = None,
    *,
    estimator: str | None = None,
    projection: str | None = None,
    rng: RNG = None,
    name: str = "kernattn_favor",
) -> Favor:
    r"""Make :math:`\phi(q)^T \phi(k) \approx e^{s q^T k}` the attention of any model that asks for it by name.

    ``model.set_attn_implementation("kernattn")`` swaps a model's attention for exact attention by kernattn, and
    "kernattn_favor" for FAVOR+ (Choromanski et al. 2021). The model is not modified, and any other name swaps back.
    Causal and bidirectional attention are served, masks of padded tokens, grouped queries, the caches that grow, and
    :class:`StateCache`, which does not. "kernattn" serves sliding windows too. Dropout of attention, packed sequences,
    soft caps, biases of positions, sinks and static caches are refused when a model asks for them. `redraw` of what is
    returned gives all layers fresh features. Models that keep attention of their own, such as Bloom and Falcon, are not
    changed.

    A model's config keeps number of features, estimator, projection, seed and redraws. A model that is loaded has
    those that it was saved with, and whatever is given here must be the same: else its first call raises an error.

    Parameters
    ----------
    num_features : int, optional
        The number of features; 256 for a new model.
    estimator : str, optional
        Which features, as :func:`kernattn.random_features` names them, of those that need no data; "positive" for a
        new model.
    projection : str, optional
        How frequencies are arranged, as in :func:`kernattn.random_features`; "orthogonal" for a new model.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the seed, which is `rng` itself where that is an integer. Draws follow from it, the layer's index and
        the number of redraws: processes that share a new model need the same integer.
    name : str
        The name of this attention, which begins with ``"kernattn_"``. Models that ask for different names can have
        different numbers of features; a name that is registered again changes for the models that use it.

    Examples
    --------
    >>> import torch
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> from kernattn.huggingface import register
    >>> favor = register(num_features=64, rng=0)
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=64, vocab_size=9)).eval()
    >>> tokens = torch.tensor([[1, 2, 3, 4]])
    >>> with torch.no_grad():
    ...     own = model(tokens).logits
    ...     model.set_attn_implementation("kernattn")
    ...     exact = model(tokens).logits
    ...     model.set_attn_implementation("kernattn_favor")
    ...     approximate = model(tokens).logits
    >>> bool((exact - own).abs().max() < 1e-5), bool((approximate - own).abs().max() < 0.1)
    (True, True)
    """
    given: Any = name
    if not isinstance(given, str) or not given.startswith("kernattn_") or given == "kernattn_":
        raise ParameterError(f"name must begin with 'kernattn_' and go on; got {shown(name)}")
    given, source = rng, generator(rng)
    seed = int(given) if isinstance(given, Integral) else int(source.integers(2**63))
    told = {"num_features": num_features, "estimator": estimator, "projection": projection, "seed": rng}
    said = tuple(key for key, value in told.items() if value is not None)
    favor = Favor(
        DEFAULTS.num_features if num_features is None else positive_integer("num_features", num_features),
        DEFAULTS.estimator if estimator is None else estimator,
        DEFAULTS.projection if projection is None else projection,
        seed,
        said,
    )
    favor.draw(0, 64, 0.125)
    for key, attention in (("kernattn", exact_attention), (name, favor)):
        AttentionInterface.register(key, attention)
        AttentionMaskInterface.register(key, make_key_mask)
    return favor
