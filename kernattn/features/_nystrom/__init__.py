"""Nystrom maps: features from the kernel's own values at landmarks."""
