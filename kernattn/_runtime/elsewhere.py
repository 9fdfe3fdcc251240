"""What other libraries call things, and what to write here: the last words of errors about names and keywords."""

from collections.abc import Iterable
from difflib import get_close_matches
from inspect import signature
from typing import Any, Self

_GAUSSIAN = "that is 'gaussian' here"
_FOURIER = "random Fourier features are 'trigonometric', and 'phase' with one cosine for each frequency"
_ORTHOGONAL = "orthogonal random features are 'trigonometric' with projection='orthogonal'"
_FAVOR = "FAVOR+ is 'positive' with projection='orthogonal'"
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
        "exponential": "that is ka.kernels.Matern(nu=0.5)",
        "poly": "that is 'polynomial' here, or ka.kernels.Polynomial(degree, gamma, coef0)",
        "linear": "that is ka.kernels.Polynomial(degree=1)",
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
        "nystroem": _LANDMARKS,
        "nystrom": _LANDMARKS,
        **dict.fromkeys(("greedy", "kmeans", "leverage", "minibatchkmeans", "rpcholesky", "uniform"), _LANDMARKS),
    },
    "projection": {
        "gaussian": "independent draws are 'iid' here",
        "orf": "that is 'orthogonal' here",
        "qmc": "quasi-Monte Carlo is 'sobol' or 'halton' here",
    },
    "method": {"random": "that is 'uniform' here", "nystroem": _LANDMARKS, "nystrom": _LANDMARKS},
}

KEYWORDS: dict[str, dict[str, str]] = {  # and by the parameter that takes its place
    "gamma": {"lengthscale": "write lengthscale = 1 / sqrt(2 gamma) for a Gaussian kernel, 1 / gamma for a Laplacian"},
    **{key: {"lengthscale": "that is lengthscale here"} for key in ("length_scale", "sigma", "bandwidth")},
    **{key: {"num_features": "that is num_features here"} for key in ("n_components", "n_features")},
    "alpha": {"ridge": "that is ridge here", "noise": "that is noise**2 here"},
    "penalty": {"ridge": "that is ridge here"},
    "C": {"ridge": "C is 1 / ridge here"},
    **{key: {"random_state": "that is random_state here, as in scikit-learn"} for key in ("rng", "seed")},
}


def meant(name: str, value: Any, allowed: Iterable[str] = ()) -> str:
    """Return what a value that is not allowed may mean, after a colon, to end an error with; empty if that is unknown.

    `allowed` are names among which one nearly like it is looked for.
    """
    if not isinstance(value, str):
        return ""
    known, text = NAMES.get(name, {}), "".join(c for c in value.lower() if c not in " -_")
    if text in known:
        return f": {known[text]}"
    near = get_close_matches(value.lower(), allowed, 1, 0.8)
    return f": did you mean {near[0]!r}?" if near else ""


class ToldKeywords:
    """A class whose constructor says of another library's keyword what to write in its place."""

    def __new__(cls, *_: Any, **keywords: Any) -> Self:
        for name in keywords.keys() & KEYWORDS.keys():
            takes = signature(cls.__init__).parameters
            told = [text for parameter, text in KEYWORDS[name].items() if parameter in takes]
            if told and name not in takes:
                raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {name!r}: {told[0]}")
        return super().__new__(cls)
