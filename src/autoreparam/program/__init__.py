"""Understands a NumPyro model and rewrites it in any parameterization."""
