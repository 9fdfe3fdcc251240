"""Tests of hypotheses: one law, independence, and independence given other variables."""
