"""Features read by a GPU: the same stages as on the host, on streams of their own."""
