"""What the compiled siblings share."""
