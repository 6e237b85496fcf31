"""Reports in one HTML file."""
