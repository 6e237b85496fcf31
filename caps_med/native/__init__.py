"""The basis of native kernels: vectors of sixteen numbers, compilation, its cache, threads.

Numba compiles the kernels; no C compiler is needed. They compile on a machine's first use, which
takes some seconds, and are kept on disk (`caps_med.native.cache`).
"""

#: Numbers in a vector.
LANES = 16
