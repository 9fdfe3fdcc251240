"""Which keys a query of exact attention sees: plans, their parts, and intervals."""
