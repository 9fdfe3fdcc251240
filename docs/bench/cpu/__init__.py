"""Races on the CPU: compiled loops against torch, scikit-learn and packages of attention, on as many threads."""
