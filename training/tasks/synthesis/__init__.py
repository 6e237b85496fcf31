"""Learning to synthesize images from label maps."""
