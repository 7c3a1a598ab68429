"""Chooses λ: how far to center each element of each site."""
