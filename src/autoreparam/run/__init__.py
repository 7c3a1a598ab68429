"""A run from its settings to its tree: begin, go on, store, finish."""
