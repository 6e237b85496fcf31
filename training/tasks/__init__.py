"""What can be learned, and the way from data to a published model."""
