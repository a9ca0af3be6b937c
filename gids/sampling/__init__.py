"""Sampling: seeds to blocks."""
