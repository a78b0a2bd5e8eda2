"""Matrices: kernel matrices, their factors, and what Gaussian regression needs of them.

Everything here is linear algebra on tensors, and knows neither labels nor models: covariances
(:mod:`.covariances`), inverse Cholesky factors (:mod:`.inverse_factors`), log evidences with
gradients in closed form (:mod:`.evidence`), exact regression in one matrix (:mod:`.in_place`) or on a
few rows each (:mod:`.local_regression`), which those are (:mod:`.nearest`, :mod:`.neighbour_index`),
the one rule for the jitter (:mod:`.jitter`), and loops over rows whose memory does not grow with their
number (:mod:`.row_chunks`).
"""
