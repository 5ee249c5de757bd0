from benchopt import BaseSolver

from untuned import solvers
from untuned_paper.comparison import grids, measurement


class Solver(BaseSolver):
    """A method of `untuned.solvers`, at its published tuned values, its default, or as told:
    "step_size=0.5 outer_ratio=0.01" is a setting too."""

    name = "untuned"
    requirements = ["pip::untuned"]
    parameters = {
        "method": solvers.names(),
        "setting": [grids.TUNED, grids.DEFAULT],
    }
    curve = True  # until the objective says otherwise
    test_config = {"method": "s-tfbo", "setting": grids.DEFAULT}

    def skip(self, experiment, **rules):
        if self.setting == grids.TUNED:
            shown = grids.settings(self.method, experiment.name)
            if grids.TUNED not in shown:
                return True, f"no tuned values of {self.method} are published for {experiment.name}"
        return False, None

    def set_objective(self, experiment, batch_size, max_seconds, curve):
        self.run_ = measurement.Measured(
            experiment, self.method, self.setting, batch_size, max_seconds,
            self.get_seed(use_repetition=True),
        )  # fmt: skip
        self.curve = curve

    def get_next(self, stop_val):
        # Evaluated at records 0, 1, 2, 4, 8, ... and at the end; or at both ends only.
        return max(1, 2 * stop_val) if self.curve else 10**12

    def run(self, callback):
        self.run_.go(callback)

    def get_result(self):
        return {"point": self.run_.point}
