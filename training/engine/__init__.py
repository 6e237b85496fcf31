"""The training loop and what surrounds it: run folder, sampling, memory, processes, progress."""
