"""Trainings side by side, on the nodes of a Ray cluster or the cores of this machine."""
