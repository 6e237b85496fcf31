"""Who may do what: keys and their scopes, rates, and what browsers are told."""
