"""The HTTP service over caps_med."""
