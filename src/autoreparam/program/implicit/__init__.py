"""What was non-centered by hand: found in the traced model, and sampled as what it becomes."""
