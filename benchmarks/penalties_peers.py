"""One peer, in an environment of its own: `penalties_peers.py NAME FOLDER...`.

Of each folder it reads in.npz and writes NAME.npz with predictions for T, coefficients and
processor seconds. Each peer is used as its documentation shows: strengths on a grid, five folds.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

GRID = 20


def strengths(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """From the one that leaves nothing in the model of a lasso downwards."""
    top = float(np.abs(X.T @ (y - y.mean())).max() / len(y))
    return np.geomspace(top, 1e-3 * top, GRID)


def skglm(X: np.ndarray, y: np.ndarray, given: Any) -> Any:
    """Its non-convex penalty, MCP, which shrinks large coefficients less."""
    from skglm import MCPRegression, SparseLogisticRegression
    from sklearn.model_selection import GridSearchCV

    kind = SparseLogisticRegression() if given["classes"] else MCPRegression()
    scoring = "neg_log_loss" if given["classes"] else "neg_mean_squared_error"
    return GridSearchCV(kind, {"alpha": strengths(X, y)}, cv=5, scoring=scoring).fit(X, y)


def asgl(X: np.ndarray, y: np.ndarray, given: Any) -> Any:
    """Its adaptive lasso, or group lasso where there are blocks."""
    from asgl import Regressor
    from sklearn.model_selection import GridSearchCV

    if given["classes"]:
        raise ValueError("only numbers")
    kind: dict[str, Any] = {"penalization": "alasso", "weight_technique": "ridge"}
    fit: dict[str, Any] = {}
    if len(given["blocks"]):
        kind = {"penalization": "gl"}
        fit = {"group_index": given["blocks"]}
    grid = {"lambda1": strengths(X, y)[::2]}
    search = GridSearchCV(
        Regressor(model="lm", **kind), grid, cv=5, scoring="neg_mean_squared_error"
    )
    return search.fit(X, y, **fit)


def glum(X: np.ndarray, y: np.ndarray, given: Any) -> Any:
    """Its own cross-validation."""
    from glum import GeneralizedLinearRegressorCV

    family = "binomial" if given["classes"] else "normal"
    return GeneralizedLinearRegressorCV(
        family=family, l1_ratio=[0.0, 0.5, 1.0], n_alphas=GRID, cv=5
    ).fit(X, y)


def optuna(X: np.ndarray, y: np.ndarray, given: Any) -> Any:
    """One strength and a mixture, for as many seconds of the processor as ours takes."""
    import optuna as library
    from sklearn.linear_model import ElasticNet, LogisticRegression
    from sklearn.model_selection import cross_val_score

    library.logging.set_verbosity(library.logging.ERROR)
    classes = bool(given["classes"])
    scoring = "neg_log_loss" if classes else "neg_mean_squared_error"

    def model(alpha: float, share: float) -> Any:
        if classes:
            return LogisticRegression(C=1 / alpha, max_iter=500)
        return ElasticNet(alpha=alpha, l1_ratio=share)

    def objective(trial: Any) -> float:
        alpha = trial.suggest_float("alpha", 1e-4, 1e4 if classes else 1e1, log=True)
        share = trial.suggest_float("share", 0.05, 1.0)
        return float(-cross_val_score(model(alpha, share), X, y, cv=5, scoring=scoring).mean())

    end = time.process_time() + max(float(given["seconds"]), 0.1)

    def over(study: Any, _: Any) -> None:
        if time.process_time() > end:
            study.stop()

    study = library.create_study(sampler=library.samplers.TPESampler(seed=0))
    study.optimize(objective, callbacks=[over])
    return model(**study.best_params).fit(X, y)


PEERS = {"skglm": skglm, "asgl": asgl, "glum": glum, "optuna": optuna}


def main(name: str, folder: Path, warm: bool) -> None:
    """Fit, predict, write; imports and compilers do not count where it is not warm."""
    warnings.simplefilter("ignore")
    with np.load(folder / "in.npz") as file:
        given = dict(file)
    X, y, T = given["X"], given["y"], given["T"]
    classes = np.unique(y) if given["classes"] else np.zeros(0)
    if len(classes) > 2 and name != "optuna":
        raise ValueError("only two classes")
    mean, scale = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    X, T = (X - mean) / scale, (T - mean) / scale
    if not warm:
        some = np.arange(40)
        if given["classes"]:  # of each as many as five folds need
            some = np.concatenate([np.flatnonzero(y == each)[:20] for each in classes])
        PEERS[name](X[some], y[some], given | {"seconds": 0.1})
    start = time.process_time()
    model = PEERS[name](X, y, given)
    seconds = time.process_time() - start
    if not given["classes"]:
        predicted = np.ravel(model.predict(T))
    elif hasattr(model, "predict_proba"):
        predicted = model.predict_proba(T)
    else:
        chance = np.ravel(model.predict(T))
        predicted = np.column_stack([1 - chance, chance])
    coef = getattr(model, "best_estimator_", model).coef_
    np.savez(folder / f"{name}.npz", predicted=predicted, coef=coef, seconds=seconds)


if __name__ == "__main__":
    for number, each in enumerate(sys.argv[2:]):
        main(sys.argv[1], Path(each), warm=number > 0)
