"""
A trained language model, transferred
=====================================

`python examples/protein_language_model.py` transfers attention of a language model that a package ships.

Sapiens (Prihoda et al. 2022) is a masked language model of human antibodies: 4 layers of 8 heads of width 16, trained
on 20 million sequences. Version 1.0.2 of its package holds the weights, under the MIT licence, and needs no hub:

    pip install --no-deps sapiens==1.0.2

They become a model of transformers here. Sequences are sampled from the model itself, residue by residue. The table
says by how many nats the predictions at masked residues differ from softmax attention's (their Kullback-Leibler
divergence), and how often the likeliest residue is the same.
"""

from __future__ import annotations

import argparse
import re
import time
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import RobertaConfig, RobertaForMaskedLM

from kernattn.huggingface import register, transfer

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
FIRST, MASK = 4, 24  # tokens: <s> 0, padding 1, </s> 2, unknown 3, residues, the mask
START = (  # the heavy chain's variable region of trastuzumab
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRY"
    "ADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
NAMES = (
    ("decoder.sentence_encoder.", "roberta.encoder."),
    ("embed_tokens", "word_embeddings"),
    ("embed_positions", "position_embeddings"),
    ("emb_layer_norm", "LayerNorm"),
    ("encoder.word", "embeddings.word"),
    ("encoder.position", "embeddings.position"),
    ("encoder.LayerNorm", "embeddings.LayerNorm"),
    ("layers.", "layer."),
    ("self_attn.q_proj", "attention.self.query"),
    ("self_attn.k_proj", "attention.self.key"),
    ("self_attn.v_proj", "attention.self.value"),
    ("self_attn.out_proj", "attention.output.dense"),
    ("self_attn_layer_norm", "attention.output.LayerNorm"),
    ("fc1", "intermediate.dense"),
    ("fc2", "output.dense"),
    ("final_layer_norm", "output.LayerNorm"),
    ("decoder.lm_head", "lm_head"),
)


def load_model() -> RobertaForMaskedLM:
    """Return the model of heavy chains, from the folder of the package, none of whose code runs."""
    found = find_spec("sapiens")
    if found is None or found.origin is None:
        raise SystemExit("the weights are in the package sapiens: pip install --no-deps sapiens==1.0.2")
    with torch.serialization.safe_globals([argparse.Namespace]):
        held = torch.load(Path(found.origin).parent / "models/v1/checkpoint_vh.pt", "cpu", weights_only=True)["model"]
    config = RobertaConfig(
        vocab_size=25, hidden_size=128, num_hidden_layers=4, num_attention_heads=8, intermediate_size=256,
        max_position_embeddings=146, type_vocab_size=1, layer_norm_eps=1e-5, hidden_act="gelu",
        pad_token_id=1, bos_token_id=0, eos_token_id=2,
    )  # fmt: skip
    model = RobertaForMaskedLM(config).eval()
    weights = {}
    for name, value in held.items():
        for old, new in NAMES:
            name = name.replace(old, new)
        weights[re.sub(r"^lm_head\.(weight|bias)$", r"lm_head.decoder.\1", name)] = value.float()
    weights["lm_head.bias"] = weights["lm_head.decoder.bias"]
    weights["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, 128)
    missing = model.load_state_dict(weights, strict=False)
    assert not [*missing.unexpected_keys, *missing.missing_keys], missing
    return model


@torch.no_grad()
def sample(model: RobertaForMaskedLM, count: int, seed: int = 0) -> torch.Tensor:
    """Return sequences (count, n) of tokens: an eighth of the residues is masked and drawn anew, 32 times."""
    rng = torch.Generator().manual_seed(seed)
    one = torch.tensor([0, *(FIRST + RESIDUES.index(x) for x in START), 2])
    tokens = one.repeat(count, 1)
    for _ in range(32):
        masked = masks(tokens, rng)
        logits = model(tokens.masked_fill(masked, MASK)).logits[..., FIRST : FIRST + len(RESIDUES)]
        drawn = FIRST + torch.multinomial(logits.softmax(-1).flatten(0, 1), 1, generator=rng).reshape(tokens.shape)
        tokens = torch.where(masked, drawn, tokens)
    return tokens


def masks(tokens: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Return an eighth of the residues at random, never the ends."""
    masked = torch.rand(tokens.shape, generator=rng) < 1 / 8
    masked[:, [0, -1]] = False
    return masked


@torch.no_grad()
def compare(model: RobertaForMaskedLM, tokens: torch.Tensor, masked: torch.Tensor, own: torch.Tensor) -> str:
    """Return how far predictions are from those of softmax attention."""
    found = model(tokens.masked_fill(masked, MASK)).logits[masked].log_softmax(-1)
    nats = (own.exp() * (own - found)).sum(-1).mean()
    return f"{float(nats):.4f} | {float((own.argmax(-1) == found.argmax(-1)).float().mean()):.1%}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--shared", action="store_true", help="one map for the heads of a layer")
    asked = parser.parse_args()
    model = load_model()
    seen, held = sample(model, 64).split([48, 16])
    masked = masks(held, torch.Generator().manual_seed(1))
    with torch.no_grad():
        own = model(held.masked_fill(masked, MASK)).logits[masked].log_softmax(-1)
    print("| attention | nats | same residue |", "| --- | --- | --- |", sep="\n")
    for seed in range(3):
        register(num_features=asked.features, rng=seed)
        model.set_attn_implementation("kernattn_favor")
        print(f"| FAVOR+, draw {seed} | {compare(model, held, masked, own)} |", flush=True)
    model.set_attn_implementation("sdpa")
    began = time.process_time()
    with transfer(model, [seen], asked.features, shared=asked.shared, sequences=32, rng=0) as swap:
        spent = time.process_time() - began
        print(f"| fitted maps | {compare(model, held, masked, own)} |")
        print(f"\n{swap.transfer}\nThe fits took {spent:.0f} s of CPU time.")


if __name__ == "__main__":
    main()
