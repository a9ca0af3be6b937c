"""Benchmarks: every loader on the same work, in processes of their own, with results in documented files."""
