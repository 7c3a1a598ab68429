"""What the user sees and keeps: the tree of draws, diagnostics, the store on disk, progress."""
