"""How values are shown to people."""

import numpy as np
import pytest

from untuned.util import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [(35000.0, "35000"), (0.1 + 0.2, "0.3"), (1234567.8, "1234570"), (-2e6, "-2000000"),
     (1e-7, "1e-07"), (3e17, "3e+17"), (np.inf, "inf")],
)  # fmt: skip
def test_a_number_is_written_as_people_write_it(value, text):
    assert wording.number(value) == text


def test_digits_that_are_not_asked_for_are_rounded_off():
    assert wording.number(563.7, 2) == "560"
