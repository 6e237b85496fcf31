"""All that is wrong with a data set, found in one pass, and its data card."""
