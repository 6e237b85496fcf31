"""Pictures of data, scores and answers."""
