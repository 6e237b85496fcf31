"""One module per format; `registry` lists them."""
