"""Medical image-to-image with convolutional capsule networks."""

from caps_med._version import __version__

__all__ = ["__version__"]
