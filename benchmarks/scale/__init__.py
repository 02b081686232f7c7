"""Data that do not fit into the memory of one process: on disk, and on several machines."""
