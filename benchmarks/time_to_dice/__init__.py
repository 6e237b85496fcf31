"""How soon a training reaches a good Dice; see `benchmarks.time_to_dice.__main__`."""
