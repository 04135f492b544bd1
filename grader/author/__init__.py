"""What the authors of labs use: the repository check and the start of a new lab."""
