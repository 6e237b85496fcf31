"""The evaluations of classification capsules that need trainings of their own."""
