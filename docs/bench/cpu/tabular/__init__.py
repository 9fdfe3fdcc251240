"""Estimators on real tables: defaults of ours against what else one takes, at its best."""
