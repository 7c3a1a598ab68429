"""Write Bayesian models the natural way; sample them in the parameterization that fits the data."""

__version__ = "0.1.0.dev0"
