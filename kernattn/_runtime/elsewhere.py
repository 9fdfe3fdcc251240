"""What other libraries call things, and what to write here: the last words of errors about names and keywords."""

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, Self, TypeVar

_GAUSSIAN = "that is 'gaussian' here, ka.kernels.Gaussian"
_FOURIER = "random Fourier features are 'trigonometric', and 'phase' with one cosine for each frequency"
_ORTHOGONAL = "orthogonal random features are 'trigonometric' with projection='orthogonal'"
_FAVOR = "FAVOR+ is 'positive' with projection='orthogonal'"
_FIXED = "that map estimates no kernel, and is not drawn: ka.features.elu1(), relu() and exp() make such maps"
_LANDMARKS = (
    "landmarks at random are 'uniform', better ones 'rpcholesky': as estimator= in kernattn.sklearn, as method= of "
    "ka.features.nystrom"
)

NAMES: dict[str, dict[str, str]] = {  # by parameter, in small letters without spaces, hyphens and underscores
    "kernel": {
        "rbf": _GAUSSIAN,
        "se": _GAUSSIAN,
        "squaredexponential": _GAUSSIAN,
        "laplace": "that is 'laplacian' here",
        **dict.fromkeys(("exponential", "matern12"), "that is ka.kernels.Matern(nu=0.5)"),
        "matern32": "that is ka.kernels.Matern(nu=1.5)",
        "matern52": "that is ka.kernels.Matern(nu=2.5)",
        "expsinesquared": "that is ka.kernels.Periodic(period, lengthscale)",
        **dict.fromkeys(("constant", "constantkernel", "scalekernel"), "2.0 * kernel is a kernel"),
        **dict.fromkeys(("white", "whitekernel"), "noise is no kernel, but a number of ka.solvers.gp"),
        "poly": "that is 'polynomial' here, or ka.kernels.Polynomial(degree, gamma, coef0)",
        **dict.fromkeys(("linear", "dotproduct"), "that is ka.kernels.Polynomial(degree=1)"),
        "cosine": "that is ka.kernels.Polynomial(degree=1) of rows divided by their norms",
        "chi2": "'additive_chi2' is the additive one; its exponential has no map here",
        "sigmoid": "it is not positive definite, so it has no map",
        "precomputed": "only ka.features.nystrom and NystromFeatures take a matrix",
    },
    "estimator": {
        "rff": _FOURIER,
        "fourier": _FOURIER,
        "rbfsampler": _FOURIER,
        "orf": _ORTHOGONAL,
        "orthogonal": _ORTHOGONAL,
        "favor": _FAVOR,
        "favor+": _FAVOR,
        "performer": _FAVOR,
        "favor++": "FAVOR++ is 'optimal_positive'",
        "favor#": "FAVOR# is 'favor_sharp', and 'favor_sharp_asymmetric' of queries and keys",
        "hedgehog": "features that are fitted are 'learned', of data=, or ka.features.fit",
        **dict.fromkeys(("elu", "elu+1", "elu1", "exp", "relu"), _FIXED),
        "nystroem": _LANDMARKS,
        "nystrom": _LANDMARKS,
        **dict.fromkeys(("greedy", "kmeans", "leverage", "minibatchkmeans", "rpcholesky", "uniform"), _LANDMARKS),
    },
    "projection": {
        "gaussian": "independent draws are 'iid' here",
        "orf": "that is 'orthogonal' here",
        "qmc": "quasi-Monte Carlo is 'sobol' or 'halton' here",
    },
    "loss": {
        "pinball": "that is 'quantile' here",
        **dict.fromkeys(("hinge", "logistic", "logloss"), "classes have 'squared_hinge', or ka.solvers.logistic"),
        **dict.fromkeys(("squared", "squarederror", "mse"), "least squares are ka.solvers.ridge, FeatureRidge"),
    },
    "positions": {
        **dict.fromkeys(("rope", "rotaryembedding"), "that is 'rotary' here"),
        **dict.fromkeys(("absolute", "learned", "learnable"), "these are 'learnt' here"),
        **dict.fromkeys(("sin", "sincos", "sinusoid"), "these are 'sinusoidal' here"),
    },
    "norm": {"layernorm": "that is 'layer' here", "rmsnorm": "that is 'rms' here"},
    "member": {
        **dict.fromkeys(("deltanet", "deltarule"), "that is 'delta' here"),
        **dict.fromkeys(
            ("gateddeltanet", "gateddeltarule", "qwen3next", "qwen35", "olmohybrid"), "that is 'gated_delta' here"
        ),
        **dict.fromkeys(("kimi", "kimilinear", "kimideltaattention"), "that is 'kda' here"),
        **dict.fromkeys(("retnet", "minimax", "lightning"), "constant decays of heads are 'retention' here"),
        **dict.fromkeys(("mamba", "ssd"), "that is 'mamba2' here"),
    },
    "method": {"random": "that is 'uniform' here", "nystroem": _LANDMARKS, "nystrom": _LANDMARKS},
}

_FEATURES = {"num_features": "that is num_features here", "num_landmarks": "that is num_landmarks here"}
_SEED = {
    "random_state": "that is random_state here, as in scikit-learn",
    "rng": "that is rng here",
    "seed": "that is seed here",
}
_PENALTY = {
    "ridge": "that is ridge here",
    "penalty": "that is penalty here",
    "penalties": "these are penalties here",
    "noise": "that is noise**2 here",
}
_DECAY = "write g= or gk=, the logarithm of the decay"
_CAUSAL = {
    "causal": "that is causal here",
    "phi": "ka.causal_linear_attention is causal, ka.linear_attention is not",
    "q": "it is causal, and ka.softmax_attention(causal=False) is not",
}
_PATTERN = "pattern=ka.patterns.from_mask(mask), True where a query sees a key"
_MASK = {
    "pattern": f"write {_PATTERN}, key_mask for what holds of a key in all rows, or score_bias for what is added",
    "key_mask": f"key_mask is True where there is a key; any other mask takes ka.softmax_attention with {_PATTERN}",
}
_BIAS = {"score_bias": "that is score_bias here, of each query and key; key_bias is one of each key"}
_ALWAYS = {
    "state": "the state is always returned, after the outputs",
    "phi": "ka.causal_linear_attention returns the state",
}
_NORMALISE = {"l2_normalise": "that is l2_normalise here"}
_WINDOW = {
    "left": "write left= and right=, how far a row sees back and ahead",
    "window": "that is window here",
    "pattern": "write pattern=ka.patterns.local(left, right), how far a row sees back and ahead",
}
_DIM = "d", "in_features", "input_dim", "head_dim", "dim_head", "dim_heads"
_HEADS = {
    "heads": "that is heads here",
    "q": "heads are a leading axis: (..., heads, n, d), and leading axes broadcast",
}

KEYWORDS: dict[str, dict[str, str]] = {  # and by the parameter that takes its place
    "gamma": {"lengthscale": "write lengthscale = 1 / sqrt(2 gamma) for a Gaussian kernel, 1 / gamma for a Laplacian"},
    **{key: {"lengthscale": "that is lengthscale here"} for key in ("length_scale", "sigma", "bandwidth")},
    "active_dims": {"lengthscale": "a lengthscale of 1e30 leaves a column out, as the second of (1.0, 1e30)"},
    "normalize_y": {"noise": "the prior mean of FeatureGP is that of y, and noise and amplitude are in units of y"},
    **dict.fromkeys(("n_components", "n_features", "nb_features", "features", "m"), _FEATURES),
    **{key: {"dim": "that is dim here"} for key in (*_DIM, "d_model", "hidden_size", "n_embd", "embed_dim")},
    **{key: {"projection": "that is projection='orthogonal', the default"} for key in ("orthogonal", "ortho")},
    **dict.fromkeys(("penalty", "reg", "lam", "weight_decay"), _PENALTY),
    "alpha": {**_PENALTY, "coverage": "that is 1 - coverage here", "gk": _DECAY},
    "C": {"ridge": "C is 1 / ridge here", "penalty": "C is 1 / penalty here"},
    **dict.fromkeys(("random_state", "rng", "seed"), _SEED),
    "sample_weight": {"weights": "that is weights here"},
    "fit_intercept": {"intercept": "that is intercept here"},
    "max_iter": {"max_iterations": "that is max_iterations here"},
    "tol": {"tolerance": "that is tolerance here"},
    **{key: {"q": "these are q, k and v here"} for key in ("query", "key", "value")},
    **dict.fromkeys(("causal", "is_causal"), _CAUSAL),
    **dict.fromkeys(("mask", "attn_mask"), _MASK),
    "key_padding_mask": {"key_mask": "write key_mask=~key_padding_mask, True where there is a key"},
    "attention_mask": {"key_mask": "write key_mask=attention_mask != 0, True where there is a key"},
    **{key: {"q": "no weights are dropped here"} for key in ("dropout", "dropout_p")},
    **dict.fromkeys(("num_heads", "n_heads", "n_head", "num_attention_heads", "enable_gqa"), _HEADS),
    "num_key_value_heads": {"kv_heads": "that is kv_heads here"},
    **{key: {"layers": "that is layers here"} for key in ("num_hidden_layers", "num_layers", "n_layer", "n_layers")},
    **{key: {"hidden": "that is hidden here"} for key in ("intermediate_size", "dim_feedforward", "d_ff")},
    "vocab_size": {"vocab": "that is vocab here"},
    **{key: {"length": "that is length here"} for key in ("max_position_embeddings", "n_positions", "block_size")},
    **{key: {"steps": "that is steps here"} for key in ("max_new_tokens", "num_tokens")},
    "scale": {"phi": "the scale is the kernel's, as in ka.random_features(ka.kernels.Softmax(scale=...), ...)"},
    **{key: {"gk": _DECAY} for key in ("decay", "gate", "forget", "log_decay", "log_f", "log_g")},
    "head_first": {"gk": "heads come before tokens, (..., heads, n, d), and (..., heads, n) in gates"},
    "chunk_size": {"gk": "chunks have a size of their own"},
    "pattern": {"phi": "patterns are of exact weights: ka.softmax_attention takes one"},
    "delta": {"epsilon": "that is epsilon here"},
    **dict.fromkeys(("window", "window_size", "sliding_window"), _WINDOW),
    **dict.fromkeys(("bias", "attn_bias"), _BIAS),
    **dict.fromkeys(("l2_normalize", "normalise", "normalize", "use_qk_l2norm_in_kernel"), _NORMALISE),
    **dict.fromkeys(("output_final_state", "return_state"), _ALWAYS),
    "initial_state": {"state": "that is state here"},
    "segment_ids": {
        "pattern": "write pattern=ka.patterns.documents(segment_ids)",
        "phi": "ka.causal_linear_attention takes it, and ka.linear_attention where tokens see both ways",
    },
    "cu_seqlens": {"segment_ids": "write segment_ids, which names the sequence of each token"},
}

WHERE: dict[str, str] = {  # names that are looked for in kernattn itself
    **{name: f"ka.kernels.{name}" for name in ("Cauchy", "Gaussian", "Laplacian", "Matern", "Polynomial", "Softmax")},
    **dict.fromkeys(("RBF", "rbf_kernel"), "ka.kernels.Gaussian"),
    **{
        name: f"ka.features.{name}"
        for name in ("nystrom", "hilbert", "quadrature", "recommend", "elu1", "relu", "estimators", "fit")
    },
    **{name: f"ka.solvers.{name}" for name in ("gp", "kernel_ridge", "logistic", "moments", "pca", "ridge")},
    "RBFSampler": "kernattn.sklearn.RandomFeatures",
    "Nystroem": "kernattn.sklearn.NystromFeatures",
    "scaled_dot_product_attention": "ka.softmax_attention",
    **{
        f"{name}_attention": f"ka.attention.{name}_attention"
        for name in ("compressed", "linformer", "lsh", "nystrom", "routing", "scatterbrain", "window")
    },
    "save": "the method save of a map, ka.save_state, and ka.solvers.save_moments",
}

F = TypeVar("F", bound=Callable[..., Any])


def hint_at(name: str, value: Any, allowed: Iterable[str] = ()) -> str:
    """Return a hint, after a colon, at what a value that is not allowed may mean; empty if that is unknown.

    `allowed` are names among which one nearly like it is looked for.
    """
    if not isinstance(value, str):
        return ""
    known, text = NAMES.get(name, {}), "".join(c for c in value.lower() if c not in " -_")
    if text in known:
        return f": {known[text]}"
    near = get_close_matches(value.lower(), allowed, 1, 0.8)
    return f": did you mean {near[0]!r}?" if near else ""


def object_meant(value: Any, kind: type) -> str:
    """Return a hint, after a colon, at the object of a class of kernattn that a value of another stands for."""
    if isinstance(value, type) and issubclass(value, kind):
        return ": write its parameters in brackets after it"
    if kind.__name__ == "Kernel" and isinstance(value, str):
        return ": names of kernels are for kernattn.sklearn; ka.kernels.KERNELS[name]() is the kernel"
    if kind.__name__ == "Kernel" and callable(value):
        return (
            ": ka.kernels.from_function makes a kernel of a function of Rows, and "
            "ka.features.nystrom(matrix, 'precomputed', ...) takes the matrix of any function"
        )
    if kind.__name__ == "FeatureMap" and callable(value):
        ours = str(getattr(value, "__module__", "")).startswith("kernattn.features.")
        return ": call it, it returns one" if ours else ": ka.features.from_function makes one of a function of rows"
    return ""


def instead_of(name: str, takes: Iterable[str]) -> str:
    """Return a hint at the keyword meant by one that is none of the parameters `takes`; empty if that is unknown."""
    parameters = set(takes)
    texts = (text for parameter, text in KEYWORDS.get(name, {}).items() if parameter in parameters)
    return "" if name in parameters else next(texts, "")


def tell_keyword(function: Callable[..., Any], error: TypeError) -> None:
    """Raise Python's error about how a function was called with what to write; others are left alone."""
    start, _, said = str(error).partition("() ")
    if start != function.__qualname__:
        return
    takes = signature(function).parameters
    if said.startswith("got an unexpected keyword argument "):
        name = said.split("'")[1]
        advice = instead_of(name, takes) or f"it takes {', '.join(takes)}"
        raise TypeError(f"{start}() got an unexpected keyword argument {name!r}: {advice}") from None
    if re.match(r"takes .* positional arguments? but", said):
        named = ", ".join(f"{x.name}=" for x in takes.values() if x.kind is x.KEYWORD_ONLY)
        raise TypeError(f"{error}; write {named or 'fewer'}{' by name' * bool(named)}") from None


def told_keywords(function: F) -> F:
    """Let a function say of a keyword that it does not take what to write in its place."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError as error:
            tell_keyword(function, error)
            raise

    return call  # type: ignore[return-value]


class ToldKeywords:
    """A class whose constructor says of another library's keyword what to write in its place."""

    def __new__(cls, *_: Any, **keywords: Any) -> Self:
        for name in keywords.keys() & KEYWORDS.keys():
            takes = signature(cls.__init__).parameters
            if any(each.kind is each.VAR_KEYWORD for each in takes.values()):  # of a subclass, which takes any
                break
            if told := instead_of(name, takes):
                raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {name!r}: {told}")
        return super().__new__(cls)
