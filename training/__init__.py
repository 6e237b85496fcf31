"""MONAI pipelines that learn caps_med models."""
