"""The rules of the comparison, the same for every method; docs/benchmark.md explains them."""

from benchopt import BaseObjective
from benchopt.stopping_criterion import NoCriterion

from untuned_paper.comparison import measurement


class Objective(BaseObjective):
    """Bilevel optimization: the value function and the metrics of the current model."""

    name = "Bilevel optimization"
    min_benchopt_version = "1.10"
    requirements = ["pip::untuned"]
    sampling_strategy = "callback"
    # A run ends by its time limit, or where it diverges; a plateau is part of its curve.
    stopping_criterion = NoCriterion()
    parameters = {"batch_size": [64], "max_seconds": [20.0], "curve": [True]}
    test_dataset_name = "problem"
    test_config = {"max_seconds": 0.2}

    def set_data(self, experiment):
        self.experiment = experiment

    def get_objective(self):
        return {
            "experiment": self.experiment,
            "batch_size": self.batch_size,
            "max_seconds": self.max_seconds,
            "curve": self.curve,
        }

    def evaluate_result(self, point):
        return measurement.columns(self.experiment, point)

    def get_one_result(self):
        return {"point": measurement.start(self.experiment)}
