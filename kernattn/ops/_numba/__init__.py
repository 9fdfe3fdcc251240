"""What the compiled siblings share: vectorised functions, products, tiles of features, the recurrence."""
