"""Access control: keys and their scopes, rate limits, security headers."""
