"""A GP as the last layer of a network: what the heads of Keras 3 and of tf_keras share.

A head is trained with its network (:mod:`.gp_head`), or put at the end of a trained one in closed form
(:mod:`.closed_form`); either way its posterior becomes a layer that stays (:mod:`.posterior_head`).

The doors are :mod:`gpflow_ilr.keras` and :mod:`gpflow_ilr.tf_keras`. This room imports neither
Keras, so that users of one need not install the other.
"""
