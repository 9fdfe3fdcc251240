"""Chunks of tokens in cache: maps, features, products, sums and outputs."""
