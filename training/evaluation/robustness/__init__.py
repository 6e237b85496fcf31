"""How answers of classification change under affine maps, corruptions and attacks."""
