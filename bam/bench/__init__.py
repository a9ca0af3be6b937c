"""Benchmarks: `python -m bam.bench NAME`. Each checks bytes first and runs both sides in one run."""
