"""
A Hilbert basis in a probabilistic program
==========================================

`python examples/probabilistic_programs.py` samples the lengthscale of a Gaussian process in NumPyro and in PyMC, of
those that are installed, and compares the basis with that of their own HSGP.

The eigenfunctions, `phi.basis(x)`, know no kernel and are constants of the program. Their weights, `phi.scales`, are
made for every lengthscale that is sampled: of JAX's arrays by `phi.scales(lengthscale=...)`; in PyMC, whose tensors are
symbols, by the density of PyMC's own covariance at `phi.frequencies`.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import Any

import numpy as np

import kernattn as ka

NOISE, SEED = 0.2, 0


def data(n: int) -> tuple[Any, Any]:
    """Rows on [-2, 2], and targets of a wave with noise."""
    rng = np.random.default_rng(SEED)
    x = np.sort(rng.uniform(-2, 2, (n, 1)), axis=0)
    return x, np.sin(3 * x[:, 0]) + NOISE * rng.standard_normal(n)


def in_numpyro(phi: Any, x: Any, y: Any, draws: int) -> dict[str, Any]:
    """Samples of the posterior in NumPyro."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import MCMC, NUTS

    basis, targets = jnp.asarray(phi.basis(x)), jnp.asarray(y)

    def model() -> None:
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 0.5))
        amplitude, noise = (numpyro.sample(name, dist.HalfNormal(1.0)) for name in ("amplitude", "noise"))
        weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([basis.shape[1]]).to_event(1))
        mean = amplitude * basis @ (phi.scales(lengthscale=lengthscale) * weights)
        numpyro.sample("y", dist.Normal(mean, noise), obs=targets)

    chain = MCMC(NUTS(model), num_warmup=draws, num_samples=draws, progress_bar=False)
    chain.run(jax.random.key(SEED))
    return {name: np.asarray(values) for name, values in chain.get_samples().items()}


def in_pymc(phi: Any, x: Any, y: Any, draws: int) -> dict[str, Any]:
    """Samples of the posterior in PyMC."""
    import pymc as pm
    import pytensor.tensor as pt

    basis = phi.basis(x)
    with pm.Model():
        lengthscale = pm.LogNormal("lengthscale", -1.0, 0.5)
        amplitude, noise = (pm.HalfNormal(name, 1.0) for name in ("amplitude", "noise"))
        weights = pm.Normal("weights", shape=basis.shape[1])
        density = pm.gp.cov.Matern52(phi.dim, ls=lengthscale).power_spectral_density(phi.frequencies)
        pm.Normal("y", amplitude * pt.dot(basis, pt.sqrt(density) * weights), noise, observed=y)
        kept = pm.sample(draws, tune=draws, chains=1, cores=1, random_seed=SEED, progressbar=False)
    return {name: kept.posterior[name].to_numpy()[0] for name in ("lengthscale", "amplitude", "noise", "weights")}


def of_numpyro(name: str, phi: Any, x: Any, half: float, m: int) -> tuple[Any, Any]:
    """Eigenfunctions at rows about 0, and roots of densities, of NumPyro's own functions."""
    import jax
    from numpyro.contrib.hsgp.laplacian import eigenfunctions
    from numpyro.contrib.hsgp.spectral_densities import (
        diag_spectral_density_matern,
        diag_spectral_density_squared_exponential,
    )

    with jax.enable_x64(True):
        rest = {"alpha": 1.0, "length": phi.kernel.lengthscale, "ell": half, "m": m, "dim": 1}
        if name == "Gaussian":
            densities = diag_spectral_density_squared_exponential(**rest)
        else:
            densities = diag_spectral_density_matern(nu=phi.kernel.nu, **rest)
        return np.asarray(eigenfunctions(jax.numpy.asarray(x), half, m)), np.sqrt(np.asarray(densities))


def of_pymc(name: str, phi: Any, x: Any, half: float, m: int) -> tuple[Any, Any]:
    """Eigenfunctions at rows about 0, and roots of densities, of PyMC's HSGP."""
    import pymc as pm

    kinds = {"Gaussian": pm.gp.cov.ExpQuad, "Matern 3/2": pm.gp.cov.Matern32, "Matern 5/2": pm.gp.cov.Matern52}
    own = pm.gp.HSGP(m=[m], L=[half], cov_func=kinds[name](1, ls=phi.kernel.lengthscale))
    basis, roots = own.prior_linearized(x)
    return basis.eval(), roots.eval()


PROGRAMS = {"numpyro": (in_numpyro, of_numpyro), "pymc": (in_pymc, of_pymc)}
KERNELS = {
    "Gaussian": ka.kernels.Gaussian(0.7),
    "Matern 3/2": ka.kernels.Matern(1.5, 0.7),
    "Matern 5/2": ka.kernels.Matern(2.5, 0.7),
}


def differences(program: str, m: int = 20, half: float = 3.0) -> dict[str, float]:
    """Largest differences between our basis and a program's, of eigenfunctions and of roots of densities."""
    x = np.linspace(-2, 2, 41)[:, None]
    found = {}
    for name, kernel in KERNELS.items():
        phi = ka.features.hilbert(kernel, [-2.0, 2.0], num_features=(m,), boundary=half / 2)
        ours = phi.basis(x), phi.scales()
        theirs = PROGRAMS[program][1](name, phi, x, half, m)
        found[name] = max(float(np.max(np.abs(a - b))) for a, b in zip(ours, theirs, strict=True))
    return found


def run(quick: bool = False) -> dict[str, dict[str, Any]]:
    """Print and return, by program, differences of bases and samples of the posterior."""
    n, m, draws = (40, 12, 100) if quick else (200, 32, 1000)
    x, y = data(n)
    phi = ka.features.hilbert(KERNELS["Matern 5/2"], [-2.0, 2.0], num_features=(m,), boundary=1.5)
    found: dict[str, dict[str, Any]] = {}
    for program in PROGRAMS:
        if find_spec(program) is None:
            print(f"{program} is not installed")
            continue
        apart = differences(program)
        print(f"{program}: {', '.join(f'{name} differs by {size:.1e}' for name, size in apart.items())}")
        samples = PROGRAMS[program][0](phi, x, y, draws)
        for name in ("lengthscale", "noise"):
            low, high = np.quantile(samples[name], (0.05, 0.95))
            print(f"{program}: {name} {np.median(samples[name]):.2f}, in 90 % of samples {low:.2f} to {high:.2f}")
        found[program] = {"differences": apart, **samples}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few samples of a small basis")
    run(parser.parse_args().quick)
