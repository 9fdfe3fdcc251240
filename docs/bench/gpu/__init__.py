"""Races on a GPU: each op against the traffic and the arithmetic it cannot avoid, and against its peers there."""
