"""What compression costs in quality: the same work with and without it, measured beside each other."""
