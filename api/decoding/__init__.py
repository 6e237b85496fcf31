"""Uploads are decoded in processes that may die: bounded in memory and time, unable to write."""
