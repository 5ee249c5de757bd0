import warnings

import numpy as np
import pytest

from untuned.util import limits


def test_numbers_in_half_precision_are_measured_without_a_warning():
    """1e37 is infinite in float16, of which NumPy warned in every fit on such a table."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limits.check(np.array([[1.0, -60000.0]], np.float16), "X")
    with pytest.raises(ValueError, match="X holds a number of size 2e\\+37"):
        limits.check(np.array([1.0, -2e37]), "X")
