"""The study of all estimators at as many features."""
