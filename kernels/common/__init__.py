"""What the operators share: argument checks, double backward, row-wise sums."""
