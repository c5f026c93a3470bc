"""Stores whose frames are in the memory of the host: encoded blocks, and rows for small vectors."""
