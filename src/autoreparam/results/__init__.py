"""What the user keeps: the tree of draws, its diagnostics, the store on disk, the progress line."""
