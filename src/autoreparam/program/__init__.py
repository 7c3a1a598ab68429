"""Understand a NumPyro model and rewrite it in any parameterization."""
