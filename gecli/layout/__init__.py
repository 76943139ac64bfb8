"""Storage layouts: which shape a tensor has in a device format, and the exact movement and conversion of its elements.

`platform`, `axes` and `storage_shape` calculate with plain integers; `transfer`, `cast` and `hif8` need numpy.
"""
