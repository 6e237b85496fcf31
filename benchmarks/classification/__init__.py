"""Classification by capsules and by convolutions of equal size, on public images."""
