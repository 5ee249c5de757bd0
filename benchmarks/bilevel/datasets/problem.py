from benchopt import BaseDataset

from untuned_paper.comparison import measurement


class Dataset(BaseDataset):
    """A problem by its name in `untuned_paper.problems.registry`."""

    name = "problem"
    requirements = ["pip::untuned"]
    # rows: at most so many of each data set; None for all.
    parameters = {"problem": ["covtype", "mnist-0.1"], "rows": [None]}
    test_config = {"problem": "digits-cleaning"}

    def get_data(self):
        return {"experiment": measurement.experiment(self.problem, self.rows)}
