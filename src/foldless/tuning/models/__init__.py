"""Models that a plan can name: one file each. A model gives scores of left-out samples, and weights."""
