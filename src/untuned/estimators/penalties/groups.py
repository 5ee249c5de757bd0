"""Which coefficients share a penalty strength."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from untuned.util.wording import brief, unknown


class Groups(NamedTuple):
    """`member[j, c]` is the group of feature j's coefficient in column c; groups have names."""

    member: np.ndarray
    names: list[Any]


def make(
    penalty: Any, features: int, columns: int, feature_names: Any, column_names: Any, kind: str
) -> Groups:
    """The groups that `penalty` asks for; `kind` says what a column is, "class" or "target"."""
    shape = (features, columns)
    if isinstance(penalty, str):
        if penalty == "all":
            return Groups(np.broadcast_to(np.int32(0), shape), ["all"])
        if penalty == "feature":
            index = np.broadcast_to(np.arange(features, dtype=np.int32)[:, None], shape)
            names = range(features) if feature_names is None else feature_names
            return Groups(index, list(names))
        if penalty == kind:
            index = np.broadcast_to(np.arange(columns, dtype=np.int32), shape)
            return Groups(index, list(column_names))
        raise unknown("penalty", penalty, ("all", "feature", kind))
    if isinstance(penalty, Mapping):
        penalty = _in_order(penalty, features, feature_names)
    if not isinstance(penalty, Sequence | np.ndarray):
        raise ValueError(
            f"penalty is {brief(penalty)}; expected 'feature', {kind!r}, 'all', a list with the "
            "group of each feature, or a mapping from features to groups."
        )
    if len(penalty) != features:
        raise ValueError(
            f"penalty names the groups of {len(penalty)} features and X has {features}; give one "
            "group per feature."
        )
    names = list(dict.fromkeys(penalty))
    places = {name: place for place, name in enumerate(names)}
    of_feature = np.array([places[name] for name in penalty], np.int32)
    return Groups(np.broadcast_to(of_feature[:, None], shape), names)


def _in_order(penalty: Mapping, features: int, feature_names: Any) -> list[Any]:
    """The group of each feature, from a mapping whose keys are names or positions."""
    known = list(range(features)) if feature_names is None else list(feature_names)
    # One known name among the keys makes all of them names, or a surplus one would go unnamed.
    keys = list(range(features)) if set(penalty).isdisjoint(known) else known
    strange = [key for key in penalty if key not in keys]
    if strange:
        raise unknown("feature", strange[0], map(str, known))
    missing = [key for key in keys if key not in penalty]
    if missing:
        raise ValueError(
            f"penalty says no group for {len(missing)} of {features} features, the first being "
            f"{missing[0]!r}; give each feature one."
        )
    return [penalty[key] for key in keys]
