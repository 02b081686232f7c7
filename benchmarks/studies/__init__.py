"""Studies of published experiments: each folder has its run, its figure and its committed numbers."""
