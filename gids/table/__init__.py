"""Tables of columns in files: Arrow IPC read in place, Parquet read by row group, min/max statistics."""
