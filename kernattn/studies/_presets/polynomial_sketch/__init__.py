"""The study of sketches of the polynomial kernel."""
