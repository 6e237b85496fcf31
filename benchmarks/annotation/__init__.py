"""How many corrections a project saves that asks for the right ones; see `__main__`."""
