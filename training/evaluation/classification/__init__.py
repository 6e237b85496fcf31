"""Scores of classification."""
