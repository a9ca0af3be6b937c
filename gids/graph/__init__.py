"""Graphs: schema, CSC arrays, data set folders and their conversion."""
