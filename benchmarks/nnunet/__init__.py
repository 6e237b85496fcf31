"""caps_med beside nnU-Net: each trained by its own commands, on the same images."""
