"""How the causal audit grows with its log."""
