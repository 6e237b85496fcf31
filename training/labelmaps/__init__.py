"""New label maps: deformed and recombined originals, and simulated axons."""
