"""What a map is."""
