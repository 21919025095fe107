"""What the shipped policy finds, and what it stops for nothing. See its README."""
