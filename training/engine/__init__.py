"""The training loop and its surroundings: recipe, run folder, sampling, memory, progress."""
