"""The task counting: how many cells an image shows."""
