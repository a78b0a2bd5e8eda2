"""Choosing the smoothing λ, and the noise, after one fit."""
