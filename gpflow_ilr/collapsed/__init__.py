"""The collapsed (Titsias) bound from class-wise sums over rows.

The rows enter the bound through a handful of sums (:mod:`.statistics`) that are chunked, merged, taken
back and all-reduced; bound and posterior follow from them (:mod:`.bound`).
"""
