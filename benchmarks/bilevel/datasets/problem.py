from benchopt import BaseDataset

from untuned.experiments import measured


class Dataset(BaseDataset):
    """A problem of `untuned.experiments.problems`: the paper's two, or another one by its name."""

    name = "problem"
    requirements = ["pip::untuned"]
    # rows: at most so many of each data set; None for all.
    parameters = {"problem": ["covtype", "mnist-0.1"], "rows": [None]}
    test_config = {"problem": "digits-cleaning"}

    def get_data(self):
        return {"experiment": measured.experiment(self.problem, self.rows)}
