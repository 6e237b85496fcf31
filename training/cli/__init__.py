"""The commands of training: train, data, evaluate, augment."""
