"""Parameters as files: npz without pickle, written whole or not at all."""

from __future__ import annotations

from dataclasses import asdict
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, to_numpy64
from kernattn._runtime.archive import open_archive, save_archive
from kernattn._runtime.checks import one_of, shown
from kernattn.errors import FileFormatError, KernattnError
from kernattn.transformer._config import Config
from kernattn.transformer._experts import Experts
from kernattn.transformer._members import Gated
from kernattn.transformer._params import check_params, each_shape, shapes
from kernattn.transformer._parts import Params

FORMAT = "kernattn transformer 1"
OF_LAYERS = {"gated": Gated, "experts": Experts}
DTYPES = "float16", "float32", "float64"


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
    dtype : {None, "float16", "float32", "float64"}
        In which to keep them; None keeps float64 where it is, and is float32 otherwise.

    Raises
    ------
    DTypeError, ShapeError, ParameterError, FileNotFoundError
        If an argument does not fit, or there is no such directory.
    """
    beside = check_params(params, config)
    kept = one_of("dtype", dtype, DTYPES) if dtype is not None else _usual(beside)
    arrays: dict[str, Any] = {name: to_numpy64(params[name]).astype(kept) for name in shapes(config)}
    save_archive(path, FORMAT, asdict(config), arrays)


def _usual(array: Array) -> str:
    return "float64" if str(array.dtype).endswith("float64") else "float32"


def load_params(path: str | PathLike[str]) -> tuple[dict[str, NDArray[Any]], Config]:
    """Return the parameters and the config that `save_params` wrote; those of float16 come as float32.

    Parameters
    ----------
    path : str or PathLike
        The file; nothing in it is executed.

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
    with open_archive(path, FORMAT) as archive:
        config, params = _config(archive.header), {}
        for name, shape in each_shape(config):
            value = archive.array(name, DTYPES, shape)
            params[name] = value.astype(np.float32) if value.dtype == np.float16 else value
        if len({value.dtype for value in params.values()}) > 1:
            raise FileFormatError("its arrays are of several dtypes")
    return params, config


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
    """Return what a file says of layers, as a config has it."""
    if isinstance(given, list):
        return tuple(_of_layers(kind, each) for each in given)
    return kind(**given) if isinstance(given, dict) else given
