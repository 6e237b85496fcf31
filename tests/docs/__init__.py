"""The documentation: its site, its tutorials, and the names it uses."""
