"""What speaks against a label."""

import numpy as np
import pandas as pd
import pytest

from untuned.commands import evidence


@pytest.mark.parametrize(
    ("value", "text"),
    [(np.float64(35000.0), "35000"), (np.nan, "missing"), (None, "missing"), (pd.NaT, "missing"),
     ("owner", "owner"), (7, "7")],
)  # fmt: skip
def test_a_value_that_speaks_against_a_label_can_be_read(value, text):
    assert evidence.shown(value) == text
