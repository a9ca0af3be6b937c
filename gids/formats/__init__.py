"""Data sets of other projects: one module for each layout, behind `Format`."""
