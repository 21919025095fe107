"""The strict profile: memoflow's own rules for its own records."""
