"""One module a figure; each has ``measure(site)``, which yields its `Figure` rows."""
