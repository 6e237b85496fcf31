"""Scores of models on labelled images."""
