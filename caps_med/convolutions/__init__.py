"""Convolutions of votes on CPUs: Winograd's where they can run, PyTorch's elsewhere."""
