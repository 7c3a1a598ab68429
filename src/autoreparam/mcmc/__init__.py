"""Moves chains through the posterior, in any parameterization."""
