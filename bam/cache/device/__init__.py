"""The GPU's read path: page cache, NVMe queues and kernels. The only part of `bam` that needs CuPy."""
