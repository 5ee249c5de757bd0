"""The smallest share of wrong labels that explains them about as well as the share believed.

Where classes overlap, less noise and more hesitant judges explain labels as well as more noise and
surer judges do. So for another share the judges are pooled anew, and what counts is how likely the
labels are then. Which class is taken for which stays as it was found.
"""

from __future__ import annotations

import numpy as np

from untuned.estimators.cleaning import noise
from untuned.estimators.cleaning.hearing import ABOUT_AS_LIKELY, STILL, Hearing, Settled, Voices

NEVER = 1e-3  # a share of wrong labels that is none


def least_rate(hearing: Hearing, voices_given: Voices, found: Settled) -> float:
    """The share; none where time is up.

    A likelihood falls with the square of the distance from where it is largest, so two looks tell
    where it has fallen too far: at the share believed, and as far away as counting alone would
    leave open. Where little is lost there, a look at no noise tells.
    """
    rate = hearing.rate(found.transition)
    if rate <= STILL or hearing.over():
        return 0.0

    def look(aim: float) -> float:
        transition = noise.with_rate(found.transition, aim / rate)
        return hearing.likelihood_of(hearing.pooled(voices_given, transition, found.pool))

    likeliest = look(rate)
    rows = hearing.task.weight[hearing.noisy].sum()
    counted = noise.SIGMAS * np.sqrt(rate * (1 - rate) / rows)
    for step in (min(counted, rate - NEVER), rate - NEVER):
        likely = look(rate - step)
        likeliest = max(likeliest, likely)
        lost = likeliest - likely
        if lost > ABOUT_AS_LIKELY / 4:
            return max(0.0, float(rate - step * np.sqrt(ABOUT_AS_LIKELY / lost)))
    return 0.0
