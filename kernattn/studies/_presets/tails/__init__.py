"""The study of large deviations."""
