"""The coreset problem for softmax regression: f and g of `untuned.minimize`.

    g(x, models) = mean over models of  sum_i times_i x_i l_i + ridge / 2 |coef|^2
    f(x, models) = mean over models of  min over t of  sum_i share_i l_i(t scores) + C R(x)

where K rows of equal weight have times_i x_i = 1, as rows without weights have. There are as many
models as RIDGES: the penalty that will be used on the coreset is not known, and rows that serve
only one may fail another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from untuned.coreset.topk import smoothed_top_k
from untuned.ops.cache import reusable

# On standardised features: that of scikit-learn's LogisticRegression (C = 1), and a hundred times
# that, since raw features may vary by only a tenth, for which the same C is that much stronger.
RIDGES = (1.0, 100.0)
# A strong penalty makes a model timid, not wrong: its choices stay the same when its scores are
# multiplied, so what counts is the best of these multiples.
SHARPENINGS = (1.0, 2.0, 4.0, 8.0)
OF_INTERCEPT = 1e-3  # keeps g strongly convex, also where a class is missing
STRENGTH = 0.1  # C, of the top-K regularizer, as in the experiments of the paper


class Rows(NamedTuple):
    """Rows of data; those that only fill an array up have no share and are no candidates."""

    X: Any  # (rows, features)
    label: Any  # (rows,) whole numbers
    share: Any  # (rows,) of f; they sum to one
    times: Any  # (rows,) what makes x a weight: K where x lies on the simplex; 0 for no candidate
    number: Any  # (rows,) the row's entry in x


def models(features: int, classes: int) -> dict[str, Any]:
    """Where the models start; two classes need one column, as in scikit-learn."""
    columns = 1 if classes <= 2 else classes
    coef = np.zeros((features, len(RIDGES), columns), np.float32)
    return {"coef": coef, "intercept": coef[0]}


def losses(y: dict[str, Any], rows: Rows, sharpened: float = 1.0) -> Any:
    """The loss of every row under every model, of shape (rows, models)."""
    z = sharpened * (jnp.tensordot(rows.X, y["coef"], 1) + y["intercept"])
    if z.shape[2] == 1:
        z = jnp.concatenate([jnp.zeros_like(z), z], axis=2)
    given = jnp.take_along_axis(z, rows.label[:, None, None], axis=2)[:, :, 0]
    return jax.nn.logsumexp(z, axis=2) - given


def _ridge(y: dict[str, Any]) -> Any:
    of_coef = jnp.sum(jnp.asarray(RIDGES, y["coef"].dtype)[:, None] * y["coef"] ** 2)
    return 0.5 * (of_coef + OF_INTERCEPT * jnp.sum(y["intercept"] ** 2)) / len(RIDGES)


@reusable
def on_all_rows(x: Any, y: dict[str, Any], rows: Rows) -> Any:
    """f without a regularizer."""
    by_sharpening = jnp.stack([rows.share @ losses(y, rows, t) for t in SHARPENINGS])
    return jnp.mean(jnp.min(by_sharpening, axis=0))


@reusable
def regularized(x: Any, y: dict[str, Any], rows: Rows, size: int = 1) -> Any:
    """f with the paper's regularizer, where x lies on the simplex."""
    return on_all_rows(x, y, rows) + STRENGTH * smoothed_top_k(x, size)


@reusable
def on_coreset(x: Any, y: dict[str, Any], rows: Rows) -> Any:
    """g."""
    return jnp.sum((x[rows.number] * rows.times) @ losses(y, rows)) / len(RIDGES) + _ridge(y)
