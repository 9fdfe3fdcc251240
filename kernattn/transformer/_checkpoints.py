"""Parameters of models that others trained: the folders that Hugging Face's libraries write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._runtime.archive import read_safetensors, reading
from kernattn._runtime.checks import checked_path, one_of, shown
from kernattn._runtime.extras import numpy_dtype
from kernattn.errors import FileFormatError, ParameterError
from kernattn.transformer._config import Config
from kernattn.transformer._families import (
    Arrays,
    Family,
    bert_config,
    bert_weight,
    gpt2_config,
    gpt2_weight,
    llama_config,
    llama_weight,
)
from kernattn.transformer._gated_families import mamba2_config, mamba2_weight, qwen3_next_config, qwen3_next_weight
from kernattn.transformer._halves import DTYPES, cast
from kernattn.transformer._params import each_shape

FAMILIES = {
    "bert": Family("bert", "BertModel", bert_config, bert_weight),
    "gpt2": Family("transformer", "GPT2Model", gpt2_config, gpt2_weight),
    "llama": Family("model", "LlamaModel", llama_config, llama_weight),
    "mamba2": Family("backbone", "Mamba2Model", mamba2_config, mamba2_weight),
    "qwen3_next": Family("model", "Qwen3NextModel", qwen3_next_config, qwen3_next_weight),
}


def load_checkpoint(folder: str | PathLike[str], dtype: str = "float32") -> tuple[Arrays, Config]:
    """Return the parameters and the config of a folder with config.json and safetensors, of Hugging Face's libraries.

    Kinds are GPT-2, BERT, LLaMA, Mamba-2 and Qwen3-Next. `forward` then gives the model's logits; of
    BERT and of models without a head, such as LlamaModel, the last hidden rows. Numbers come in the dtype that is
    asked for, whatever they are in the file. Weights that GPT-2 keeps as (in, out) and the others as (out, in) come as
    (in, out), and the scales of Qwen3-Next, kept as their distance from 1, as they are. A head that is tied to the
    embedding is not in the file, and not in the parameters. What follows BERT's rows, its pooler, is left out.

    Parameters
    ----------
    folder : str or PathLike
        The folder; its safetensors may be one file or several with an index.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Of the parameters; with 16 bits, of matrices alone, as `cast_params` has them: a model that was saved in
        bfloat16 loses nothing in bfloat16.

    Returns
    -------
    params : dict of numpy.ndarray
        The parameters, by the names of `shapes`.
    config : Config
        Sizes and choices.

    Raises
    ------
    FileFormatError
        If a file is damaged, or lacks a weight of the model, or a weight is not finite.
    FileNotFoundError
        If the folder lacks config.json or the weights.
    ParameterError
        If the model is none of these, or has something that `Config` cannot say.
    MissingExtra
        If safetensors is not installed, or for bfloat16 ml_dtypes.

    Examples
    --------
    >>> import tempfile
    >>> import transformers
    >>> from kernattn.transformer import load_checkpoint
    >>> sizes = transformers.GPT2Config(vocab_size=5, n_positions=8, n_embd=4, n_layer=1, n_head=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     transformers.GPT2LMHeadModel(sizes).save_pretrained(folder)
    ...     params, config = load_checkpoint(folder)
    >>> config.vocab, config.length
    (5, 8)
    """
    place = checked_path("folder", folder)
    one_of("dtype", dtype, DTYPES)
    bfloat16 = numpy_dtype(dtype, "load_checkpoint") if dtype == "bfloat16" else None
    with reading(place / "config.json", "the configuration of a model"):
        about = json.loads((place / "config.json").read_bytes())
        kind = about["model_type"]
        if not isinstance(kind, str) or kind not in FAMILIES:
            raise ParameterError(f"the model must be one of {', '.join(FAMILIES)}; {place} holds {shown(kind)}")
        family = FAMILIES[kind]
        config = family.config(about)
        if about.get("architectures") == [family.headless]:
            config = replace(config, output=None)
    given: Arrays = {}
    for name, array in _tensors(place, bfloat16):
        if (own := name.removeprefix(f"{family.prefix}.")) in given:
            raise FileFormatError(f"{place} holds the weight {own} twice")
        given[own] = array
    if config.output == "tokens" and "lm_head.weight" not in given:
        raise FileFormatError(f"{place} lacks the weight lm_head.weight")
    params = {}
    for name, shape in each_shape(config):
        value = family.weight(given, name, config)
        if value is None:
            raise FileFormatError(f"{place} lacks the weight that is {name} here")
        if value.shape != shape:
            raise FileFormatError(f"{name} must be {shape}; {place} holds {value.shape}")
        params[name] = cast(value, dtype)  # what the dtype cannot hold is refused
        if not np.isfinite(params[name]).all():
            raise FileFormatError(f"{name} must be finite numbers of {dtype}; {place} holds others")
    return params, config


def _tensors(folder: Path, bfloat16: np.dtype[Any] | None) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the tensors of all files by name; matrices of bfloat16 as they are, where there is a dtype for them."""
    index = folder / "model.safetensors.index.json"
    files = ["model.safetensors"]
    if index.exists():
        with reading(index, "an index of safetensors"):
            files = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
            if outside := [file for file in files if file in ("", ".", "..") or Path(file).name != file]:
                raise FileFormatError(f"{index} must name files of its folder; got {shown(outside[0])}")
    for file in files:
        yield from read_safetensors(folder / file, "load_checkpoint", bfloat16)
