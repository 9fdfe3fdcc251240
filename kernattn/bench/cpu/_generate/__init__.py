"""Generation of whole sequences, token by token: recurrent attention against every way of doing without a state."""

from kernattn.bench.cpu._generate.races import GENERATION, generation

__all__ = ["GENERATION", "generation"]
