"""Threads, forks, files, compilation, checks and extras: what knows nothing of arrays."""
