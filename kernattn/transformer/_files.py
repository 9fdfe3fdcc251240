"""Parameters as files: npz without pickle, written whole or not at all."""

from __future__ import annotations

from dataclasses import asdict
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._runtime.archive import open_archive, save_archive
from kernattn._runtime.checks import one_of, shown
from kernattn._runtime.extras import numpy_dtype
from kernattn.errors import FileFormatError, KernattnError
from kernattn.transformer._config import Config
from kernattn.transformer._experts import Experts
from kernattn.transformer._halves import DTYPES, host_floats
from kernattn.transformer._members import Gated
from kernattn.transformer._params import cast_params, check_params, each_shape, shapes
from kernattn.transformer._parts import Params

FORMAT = "kernattn transformer 1"
KEPT = "float16", "float32", "float64", "uint16"
"""What files hold: bfloat16 as bits."""

OF_LAYERS = {"gated": Gated, "experts": Experts}


def save_params(params: Params, config: Config, path: str | PathLike[str], *, dtype: str | None = None) -> None:
    """Write parameters and their config to an .npz file, without pickle, whole or not at all.

    Parameters
    ----------
    params : dict of arrays
        The parameters, of any library.
    config : Config
        Sizes and choices.
    path : str or PathLike
        Where to.
    dtype : {None, "bfloat16", "float16", "float32", "float64"}
        In which to keep them, as `cast_params` makes them; None keeps each as it is.

    Raises
    ------
    DTypeError, ShapeError, ParameterError, FileNotFoundError
        If an argument does not fit, or there is no such directory.
    MissingExtra
        If ml_dtypes is not installed, which has bfloat16.
    """
    check_params(params, config)
    if dtype is not None:
        params = cast_params(params, dtype)
    arrays: dict[str, Any] = {name: _bits(params[name]) for name in shapes(config)}
    save_archive(path, FORMAT, asdict(config), arrays)


def _bits(array: Array) -> NDArray[Any]:
    """Return an array of NumPy in its own dtype, of bfloat16 the bits: files of NumPy do not know it."""
    name = dtype_name(array)
    kept = host_floats(array).astype(numpy_dtype(name, "save_params"), copy=False)
    return kept.view(np.uint16) if name == "bfloat16" else kept


def load_params(path: str | PathLike[str], dtype: str | None = None) -> tuple[dict[str, NDArray[Any]], Config]:
    """Return the parameters and the config that `save_params` wrote.

    Parameters
    ----------
    path : str or PathLike
        The file; nothing in it is executed.
    dtype : {None, "bfloat16", "float16", "float32", "float64"}
        Of the parameters, as `cast_params` makes them; None leaves each as it was saved.

    Returns
    -------
    params : dict of numpy.ndarray
        The parameters.
    config : Config
        Sizes and choices.

    Raises
    ------
    FileFormatError
        If the file is damaged or not one of parameters.
    FileNotFoundError
        If there is no such file.
    ParameterError
        If the dtype is none of these, or cannot hold a number.
    MissingExtra
        If ml_dtypes is not installed, which has bfloat16.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kernattn.transformer import Config, initial_params, load_params, save_params
    >>> config = Config(dim=8, layers=1, heads=2, vocab=5, positions=None)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_params(initial_params(config, rng=0), config, pathlib.Path(folder) / "params.npz")
    ...     load_params(pathlib.Path(folder) / "params.npz")[1] == config
    True
    """
    if dtype is not None:
        one_of("dtype", dtype, DTYPES)
    with open_archive(path, FORMAT) as archive:
        config, params = _config(archive.header), {}
        for name, shape in each_shape(config):
            params[name] = value = archive.array(name, KEPT, shape)
            if value.dtype == np.uint16 and (value & 0x7F80 == 0x7F80).any():
                raise FileFormatError(f"{name} must be finite numbers {shape}; got others")
        matrices, vectors = ({x.dtype for x in params.values() if (x.ndim > 1) == many} for many in (True, False))
        if len(matrices) > 1 or not vectors <= matrices | {np.dtype(np.float32) for x in matrices if x.itemsize == 2}:
            raise FileFormatError("its arrays are of several dtypes")
    for name, value in params.items():
        if value.dtype == np.uint16:
            params[name] = value.view(numpy_dtype("bfloat16", "load_params"))
    return (params if dtype is None else cast_params(params, dtype)), config


def _config(fields: Any) -> Config:
    if not isinstance(fields, dict):
        raise FileFormatError(f"its description must hold the fields of a config; got {shown(fields)}")
    if isinstance(fields.get("grid"), list):
        fields["grid"] = tuple(fields["grid"])
    try:
        return Config(**fields | {name: _of_layers(kind, fields.get(name)) for name, kind in OF_LAYERS.items()})
    except (KernattnError, TypeError) as error:
        raise FileFormatError(f"its description is no config: {error}") from error


def _of_layers(kind: type, given: Any) -> Any:
    """Return the layers that a file names, as a config has them."""
    if isinstance(given, list):
        return tuple(_of_layers(kind, each) for each in given)
    return kind(**given) if isinstance(given, dict) else given
