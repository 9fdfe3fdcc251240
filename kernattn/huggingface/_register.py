"""The names under which transformers finds attention by kernattn."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from transformers import AttentionInterface, AttentionMaskInterface

from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import positive_integer, shown
from kernattn._runtime.deprecated import old_arguments
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap
from kernattn.huggingface._attention import Favor, exact_attention
from kernattn.huggingface._beside import FIXED, MAP, SHAPED, chosen, keep_data, keep_map
from kernattn.huggingface._masks import make_key_mask
from kernattn.huggingface._settings import DEFAULTS, Settings, is_drawn


@old_arguments(seed="rng")
def register(
    num_features: int | None = None,
    *,
    estimator: str | None = None,
    projection: str | None = None,
    rng: RNG = None,
    data: Array | tuple[Array, Array] | None = None,
    phi: FeatureMap | None = None,
    name: str = "kernattn_favor",
) -> Favor:
    r"""Make :math:`\phi(q)^T \phi(k) \approx e^{s q^T k}` the attention of any model that asks for it by name.

    ``model.set_attn_implementation("kernattn")`` swaps a model's attention for exact attention by kernattn, and
    "kernattn_favor" for FAVOR+ (Choromanski et al. 2021). The model is not modified, and any other name swaps back.
    Causal and bidirectional attention are served, masks of padded tokens, grouped queries, the caches that grow, and
    :class:`StateCache`, which does not. "kernattn" serves sliding windows and sinks too. Dropout of attention, packed
    sequences, soft caps, biases of positions and static caches are refused when a model asks. `redraw` of what is
    returned gives all layers fresh features. Models that keep attention of their own, such as Bloom and Falcon, are not
    changed.

    A model's config keeps number of features, estimator, projection, seed and redraws, and the name of the data or the
    map; of a map without a draw, such as "elu1" and `phi`, its name alone. A model that is loaded has those that it was
    saved with, and whatever is given here must be the same: else its first call raises an error. So it does where the
    data or the map are not given again. A map without a draw takes any `rng` of here.

    Parameters
    ----------
    num_features : int, optional
        The number of features; 256 for a new model.
    estimator : str, optional
        Which features, as :func:`kernattn.random_features` names them; "positive" for a new model, and "auto" with
        data, which chooses here and for the scale :math:`d^{-1/2}`. "learned" fits one map to the data for all layers.
        "elu1" and "relu" have no draw and as many features as a head has dimensions.
    projection : str, optional
        How frequencies are arranged, as in :func:`kernattn.random_features`; "orthogonal" for a new model.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the seed, which is `rng` itself where that is an integer. Draws follow from it, the layer's index and
        the number of redraws: processes that share a new model need the same integer.
    data : (n, d) array or pair of such, optional
        Queries and keys of a head as they will come, or a tuple (queries, keys), for estimators that follow from data.
    phi : FeatureMap, optional
        A map for all layers, such as :func:`kernattn.features.fit` returns, in place of number of features, estimator
        and projection. It has the scale of scores of its own.
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
    told: dict[str, Any] = {"num_features": num_features, "estimator": estimator, "projection": projection, "seed": rng}
    told |= {"data": data, "phi": phi}
    said = {key for key, value in told.items() if value is not None}
    _check_told(estimator, said)
    m = DEFAULTS.num_features if num_features is None else positive_integer("num_features", num_features)
    projection = DEFAULTS.projection if projection is None else projection
    beside, dim = "", 64
    if phi is not None:
        estimator, beside, m = MAP, keep_map(phi), phi.num_features_of(phi.dim or dim)
        said |= {"estimator", "beside"}
    elif data is not None:
        beside, rows = keep_data(data)
        dim = rows.queries.shape[1]
        if estimator in (None, "auto"):
            estimator = chosen(rows, m, projection, seed)
        beside = beside if estimator in SHAPED else ""
        said |= {"estimator", "beside"}
    favor = Favor(
        m,
        DEFAULTS.estimator if estimator is None else estimator,
        projection,
        seed if is_drawn(estimator) else DEFAULTS.seed,
        tuple(name for name in Settings._fields if name in said),
        beside,
    )
    favor.draw(0, dim, dim**-0.5)
    for key, attention in (("kernattn", exact_attention), (name, favor)):
        AttentionInterface.register(key, attention)
        AttentionMaskInterface.register(key, make_key_mask)
    return favor


def _check_told(estimator: Any, said: set[str]) -> None:
    """Raise where what a registration is told does not go together."""
    own, what = set[str](), ""
    if "phi" in said:
        own, what = said - {"phi"}, "phi, which says all"
    elif isinstance(estimator, str) and estimator in FIXED:
        own, what = said - {"estimator"}, f"estimator {estimator!r}, which has no draw"
    elif "data" in said and estimator is not None and estimator not in ("auto", *SHAPED):
        own, what = {"data"}, f"estimator {estimator!r}, which does not look at it"
    elif estimator in ("auto", *SHAPED[1:]) and "data" not in said:
        raise ParameterError(f"estimator {estimator!r} needs data: rows of queries and keys of a head")
    if own:
        names = ", ".join("rng" if name == "seed" else name for name in sorted(own))
        raise ParameterError(f"leave {names} out beside {what}")
