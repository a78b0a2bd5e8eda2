"""A GP as the last layer of a network: what the heads of Keras 3 and of tf_keras share.

The doors are :mod:`gpflow_ilr.keras` and :mod:`gpflow_ilr.tf_keras`. This room imports neither
Keras, so that users of one need not install the other.
"""
