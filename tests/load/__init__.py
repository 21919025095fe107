"""memoflow under more work than it can take at once."""
