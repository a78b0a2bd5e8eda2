"""Claims about the result of a training."""

import numpy as np

from gpflow_ilr.training import Fit


def test_it_is_a_sentence() -> None:
    losses = np.array([5.0, 4.0, 3.0])
    result = Fit("adam", True, "all steps were taken", 2.5, 3, losses, [], 1.25)
    assert result.num_steps == 3
    assert str(result) == "Loss 2.5, after 3 of 3 steps (adam) in 1.2 s: all steps were taken."
    held_out = Fit("adam", True, "No gain.", 0.5, 1, losses, [(0, 0.6), (1, 0.5)], 1.25)
    assert str(held_out).startswith("Held-out NLL 0.5, after 1 of 3 steps")
    assert str(held_out).endswith("No gain.")
    assert "losses" not in repr(result)
