"""scikit-learn estimators for people who have a table: penalties, wrong labels, too many rows."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from untuned.estimators.cleaning.label_cleaner import LabelCleaner
    from untuned.estimators.coreset_selector import CoresetSelector
    from untuned.estimators.penalties.lasso import BilevelElasticNet, BilevelLasso
    from untuned.estimators.penalties.logistic import BilevelLogisticRegression
    from untuned.estimators.penalties.positive import BilevelGamma, BilevelPoisson
    from untuned.estimators.penalties.ridge import BilevelRidge

__all__ = [
    "BilevelElasticNet", "BilevelGamma", "BilevelLasso", "BilevelLogisticRegression",
    "BilevelPoisson", "BilevelRidge", "CoresetSelector", "LabelCleaner",
]  # fmt: skip

_HOMES = {
    "BilevelElasticNet": "penalties.lasso",
    "BilevelGamma": "penalties.positive",
    "BilevelLasso": "penalties.lasso",
    "BilevelLogisticRegression": "penalties.logistic",
    "BilevelPoisson": "penalties.positive",
    "BilevelRidge": "penalties.ridge",
    "CoresetSelector": "coreset_selector",
    "LabelCleaner": "cleaning.label_cleaner",
}


def __getattr__(name: str) -> Any:
    """scikit-learn takes a second to import, so each class is looked up only when used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"untuned.estimators.{_HOMES[name]}"), name)
