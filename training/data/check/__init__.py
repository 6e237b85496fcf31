"""The data check: finds all problems of a data set in one pass and computes its data card."""
