"""A run from its settings to its tree: begin, continue, store, finish."""
