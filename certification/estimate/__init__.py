"""What memoflow reserves for an input, beside what a real model counted. See its README."""
