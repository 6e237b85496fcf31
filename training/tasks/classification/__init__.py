"""Classification: recipe, plan from the data, augmentation, training."""
