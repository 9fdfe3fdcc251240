"""``kernattn transformer``."""

import argparse
from pathlib import Path
from typing import Any

from kernattn.errors import ParameterError


def add_transformer(commands: Any) -> None:
    """Add ``transformer``."""
    parser = commands.add_parser(
        "transformer",
        help="draw tokens from a file of parameters",
        description="Draws sequences token by token from the parameters of a causal transformer, as save_params writes "
        "them, or a folder with config.json and safetensors. Prints a sequence a line, or writes them.",
    )
    parser.set_defaults(run=_draw_tokens)
    add = parser.add_argument
    add("params", type=Path, metavar="FILE", help="parameters: a .npz file, or the folder of a model (load_checkpoint)")
    add("--prompt", type=int, nargs="+", default=[0], metavar="TOKEN", help="tokens to begin with (default: 0)")
    add("--steps", type=int, default=64, metavar="N", help="tokens to draw (default: %(default)s)")
    add("--sequences", type=int, default=1, metavar="B", help="sequences (default: %(default)s)")
    add("--temperature", type=float, default=1.0, metavar="T", help="0 takes the most likely (default: %(default)s)")
    add("--top-k", type=int, metavar="K", help="draw among the K most likely tokens")
    add("--top-p", type=float, metavar="P", help="draw among the fewest tokens of this probability together")
    add("--seed", type=int, default=0, metavar="S", help="of the draws (default: %(default)s)")
    add("--map", type=Path, metavar="FILE.npz", help="attention by this feature map")
    add("--elu1", action="store_true", help="attention by elu(x) + 1 (default: exact attention)")
    add("--out", type=Path, metavar="FILE.npy", help="write the tokens (B, N) there")


def _draw_tokens(options: argparse.Namespace) -> None:
    import numpy as np

    from kernattn._runtime.checks import checked_target
    from kernattn._runtime.files import replacing
    from kernattn.features import elu1, load
    from kernattn.transformer import generate, load_checkpoint, load_params

    if options.elu1 and options.map is not None:
        raise ParameterError("--elu1 and --map are two kinds of attention; give one")
    if options.sequences < 1:
        raise ParameterError(f"--sequences must be 1 or more; got {options.sequences}")
    out = None if options.out is None else checked_target("--out", options.out)
    if out is not None and out.exists() and any(out.samefile(each) for each in (options.params, options.map) if each):
        raise ParameterError(f"--out must be another file than those that are read; got {out}")
    params, config = (load_checkpoint if options.params.is_dir() else load_params)(options.params)
    tokens = generate(
        params,
        config,
        np.tile(options.prompt, (options.sequences, 1)),
        options.steps,
        attention=load(options.map) if options.map is not None else elu1() if options.elu1 else None,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        rng=options.seed,
        progress=None,
    )
    if out is None:
        print(*(" ".join(map(str, row)) for row in tokens), sep="\n")
        return
    with replacing(out) as file:
        np.save(file, tokens)
    print(f"{len(tokens)} sequences of {options.steps} tokens are in {out}")
