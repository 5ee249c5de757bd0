"""What must hold for every method of the registry."""

import dataclasses
import inspect

import jax
import numpy as np
import pytest
import torch

import untuned
from libraries import as_numpy, convert, given
from reference.problems import cleaning, quadratic, regularization
from untuned.data.batches import Data
from untuned.ops import get
from untuned.ops.jax_on_host import OnHost
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers import DTFBO, STFBO, Auto

SOLVERS = {
    "d-tfbo": DTFBO(c_y=1e-3, c_v=1e-3),
    "d-tfbo 10/10": DTFBO(inner_steps=10, linear_steps=10),
    "s-tfbo": STFBO(),
    "auto": Auto(),
}
TUNED = set(untuned.solvers.names()) - {"d-tfbo", "s-tfbo", "auto"}
long = pytest.mark.long
SHORT = {"inner_steps": 3, "linear_steps": 3, "period": 4}


def shortened(name):
    """A tuned method with short loops, which run faster."""
    cls = untuned.solvers.get(name)
    fields = {field.name for field in dataclasses.fields(cls)}
    return cls(**{key: value for key, value in SHORT.items() if key in fields})


@pytest.fixture(params=SOLVERS)
def solver(request):
    """The two methods of the paper in their three forms, and `auto`."""
    return SOLVERS[request.param]


@pytest.fixture(params=[*SOLVERS, *sorted(TUNED)])
def any_solver(request):
    """Every method there is."""
    return SOLVERS[request.param] if request.param in SOLVERS else shortened(request.param)


@pytest.fixture(params=sorted(TUNED))
def tuned_solver(request):
    """Every method with step sizes."""
    return shortened(request.param)


@pytest.fixture(params=[*SOLVERS, "bsa", "vrbo"])
def drawing_solver(request):
    """Every way of drawing rows: one batch, many, a random number, and all rows at times."""
    return SOLVERS[request.param] if request.param in SOLVERS else shortened(request.param)


@pytest.fixture(params=untuned.solvers.names())
def any_method(request):
    return request.param


def test_method_works_without_arguments(any_method):
    made = untuned.solvers.get(any_method)()
    assert made.name == any_method
    assert made.loops in ("single", "double")
    assert dataclasses.is_dataclass(made)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "other"


def test_every_hyperparameter_is_read(any_method):
    """A field that nothing reads would be a promise that is not kept."""
    cls = untuned.solvers.get(any_method)
    classes = [part for part in cls.__mro__ if dataclasses.is_dataclass(part)]
    body = "".join(inspect.getsource(inspect.getmodule(part)) for part in classes)
    checked = (part for part in classes if hasattr(part, "__post_init__"))
    checks = "".join(inspect.getsource(part.__post_init__) for part in checked)
    for field in dataclasses.fields(cls):
        reads = body.count(f"self.{field.name}") - checks.count(f"self.{field.name}")
        assert reads > 0, field.name


@pytest.mark.long
@pytest.mark.parametrize(
    ("problem", "batch_size"),
    [
        pytest.param(quadratic(0, 3, 4, 5.0), None, id="quadratic"),
        pytest.param(regularization(1, 40, 30, 6), None, id="regularization", marks=long),
        pytest.param(regularization(1, 40, 30, 6), 8, id="regularization minibatch", marks=long),
        pytest.param(cleaning(2, 30, 24, 5, 3, 0.4), (7, 5), id="cleaning minibatch", marks=long),
    ],
)
def test_jax_and_torch_make_the_same_200_steps(solver, problem, batch_size, monkeypatch):
    # `auto` counts what a Hessian costs, which differs between libraries: here it is told the same.
    monkeypatch.setattr(get("torch"), "hessian_price", lambda fn, x, y: 4.0)
    monkeypatch.setattr(OnHost, "hessian_price", lambda self, fn, x, y: 4.0)
    runs = []
    # On all rows `auto` ends by itself, where rounding decides how far strengths run to infinity.
    steps = 8 if solver.name == "auto" and batch_size is None else 200
    for library in ("jax", "torch"):
        task = given(problem, library)
        runs.append(
            untuned.minimize(
                *task.positional,
                **task.data,
                method=solver,
                max_steps=steps,
                batch_size=batch_size,
                seed=11,
            )
        )
    for name in ("x", "y", "v"):
        ours, theirs = (as_numpy(getattr(run.state, name)) for run in runs)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    assert runs[0].counts == runs[1].counts
    for name in set(runs[0].history) - {"seconds"}:
        first, second = (run.history[name] for run in runs)
        np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.long
def test_results_do_not_depend_on_chunks(drawing_solver, library, batch_size):
    task = given(regularization(1, 40, 30, 6), library)
    runs = [
        untuned.minimize(
            *task.positional,
            **task.data,
            method=drawing_solver,
            max_steps=30,
            eval_every=every,
            batch_size=batch_size,
        )
        for every in (1, 7, 30)
    ]
    for run in runs[1:]:
        leaves = (jax.tree.leaves(each.state) for each in (run, runs[0]))
        for ours, theirs in zip(*leaves, strict=True):
            assert np.array_equal(as_numpy(ours), as_numpy(theirs))
        assert np.array_equal(as_numpy(run.x), as_numpy(runs[0].x))
        assert run.counts == runs[0].counts
        rows = run.history["step"] - 1
        for name in set(run.history) - {"seconds"}:
            assert np.array_equal(run.history[name], runs[0].history[name][rows]), name


@pytest.mark.long
def test_the_shape_of_a_tree_does_not_matter(solver, library):
    """Flat arrays, dicts, tuples, nested lists and scalars: the same numbers, the same run."""
    assert_the_shape_of_a_tree_does_not_matter(solver, library)


@pytest.mark.long
def test_the_shape_of_a_tree_does_not_matter_to_tuned_methods(tuned_solver):
    """On torch alone: trees are taken apart in `ops`, whose two ways the test above looks at."""
    assert_the_shape_of_a_tree_does_not_matter(tuned_solver, "torch")


def assert_the_shape_of_a_tree_does_not_matter(solver, library):
    problem = quadratic(0, 3, 4, 5.0)
    flat = given(problem, library)
    cat = torch.cat if library == "torch" else jax.numpy.concatenate
    stack = torch.stack if library == "torch" else jax.numpy.stack

    def join_x(x):
        return cat([stack([x["scalar"]]), x["rest"][0]])

    def join_y(y):
        return cat([y[0], y[1]["a"][0].reshape(-1)])

    x0, y0 = (np.asarray(z) for z in (problem.x0, problem.y0))
    x_tree = {"scalar": convert(library, x0[0]), "rest": [convert(library, x0[1:])]}
    y_tree = (convert(library, y0[:2]), {"a": [convert(library, y0[2:].reshape(1, 2))]})
    a = untuned.minimize(*flat.positional, method=solver, max_steps=40)
    b = untuned.minimize(
        lambda x, y: flat.outer(join_x(x), join_y(y)),
        lambda x, y: flat.inner(join_x(x), join_y(y)),
        x_tree,
        y_tree,
        method=solver,
        max_steps=40,
    )
    assert set(b.x) == {"scalar", "rest"}
    assert as_numpy(b.x["scalar"]).shape == ()
    assert as_numpy(b.y[1]["a"][0]).shape == (1, 2)
    joined = np.concatenate([[as_numpy(b.x["scalar"])], as_numpy(b.x["rest"][0])])
    np.testing.assert_allclose(joined, as_numpy(a.x), atol=1e-12)
    # MAID compares values and stops loops by norms: what rounding decides there is larger than it.
    rtol = 1e-5 if solver.name == "maid" else 1e-9
    for name in ("outer", "hypergrad_norm", "step_y"):
        np.testing.assert_allclose(b.history[name], a.history[name], rtol=rtol, atol=1e-13)


@pytest.mark.long
def test_float32_is_kept_by_tuned_methods(tuned_solver, library):
    task = given(regularization(1, 40, 30, 6), library, np.float32)
    result = untuned.minimize(
        *task.positional, **task.data, method=tuned_solver, max_steps=5, batch_size=8
    )
    for tree in (result.x, result.y, result.v):
        assert as_numpy(tree).dtype == np.float32


@pytest.mark.long
def test_dtype_is_kept(solver, library):
    ends = []
    for dtype in (np.float32, np.float64):
        task = given(regularization(1, 40, 30, 6), library, dtype)
        result = untuned.minimize(
            *task.positional, **task.data, method=solver, max_steps=20, batch_size=8
        )
        for tree in (result.x, result.y, result.v):
            assert as_numpy(tree).dtype == dtype
        assert type(result.x) is (torch.Tensor if library == "torch" else np.ndarray)
        ends.append(as_numpy(result.x))
    np.testing.assert_allclose(*ends, atol=2e-3)


class CountingOracles(Oracles):
    """Counts the calls that are really made; eager torch makes each of them in Python."""

    def __init__(self, like):
        super().__init__(like.ops, like.outer_function, like.inner_function)
        self.made = dict.fromkeys(Counts._fields, 0)

    def outer(self, *args):
        self.made["outer_grad"] += 1
        return super().outer(*args)

    def outer_value(self, *args):
        self.made["outer_grad"] += 1  # a bare value counts as much
        return super().outer_value(*args)

    def inner_value(self, *args):
        self.made["inner_grad"] += 1
        return super().inner_value(*args)

    def inner_grad(self, *args):
        self.made["inner_grad"] += 1
        return super().inner_grad(*args)

    def inner_value_and_grad(self, *args):
        self.made["inner_grad"] += 1
        return super().inner_value_and_grad(*args)

    def inner(self, *args):
        for name in ("inner_grad", "hvp", "cross"):
            self.made[name] += 1
        return super().inner(*args)

    def inner_grads(self, *args):
        self.made["inner_grad"] += 1
        return super().inner_grads(*args)

    def inner_cross(self, *args):
        for name in ("inner_grad", "cross"):
            self.made[name] += 1
        return super().inner_cross(*args)

    def linear(self, *args):
        products = super().linear(*args)

        def counted(name):
            def product(v):
                self.made[name] += 1
                return getattr(products, name)(v)

            return product

        return type(products)(counted("hvp"), counted("cross"))

    def hessian(self, x, y, rows, beside=None):
        """One batched product, which stands for one with each unit vector."""
        self.made["hvp"] += self.ops.size(y)
        return super().hessian(x, y, rows, beside)


def test_reported_counts_are_the_calls_made(any_solver, monkeypatch):
    """A Hessian counts as its price in products, which is told here to be that of its columns."""
    monkeypatch.setattr(get("torch"), "hessian_price", lambda fn, x, y: float(get("torch").size(y)))
    task = given(regularization(1, 40, 30, 6), "torch")
    plain = untuned.oracles(task.outer, task.inner, like=(task.x0, task.y0))
    oracles = CountingOracles(plain)
    state = any_solver.init(oracles, task.x0, task.y0)
    reported = dict.fromkeys(Counts._fields, 0)
    data = Data(task.inner_data, task.outer_data)
    batch = untuned.Batch(*data[:2], uniform=0.7, data=data)
    for _ in range(5):
        state, info = any_solver.step(oracles, state, batch)
        for name, count in info.counts._asdict().items():
            reported[name] += int(count)
    assert reported == oracles.made


def test_declared_cost_is_the_mean_of_the_calls_made(any_solver):
    """Over every length of a random series, and over a whole period."""
    task = given(regularization(1, 40, 30, 6), "torch")
    oracles = CountingOracles(untuned.oracles(task.outer, task.inner, like=(task.x0, task.y0)))
    data = Data(task.inner_data, task.outer_data)
    state = any_solver.init(oracles, task.x0, task.y0)
    steps = 12
    for k in range(steps):
        batch = untuned.Batch(*data[:2], uniform=k / steps, data=data)
        state, _ = any_solver.step(oracles, state, batch)
    for name, declared in any_solver.cost._asdict().items():
        assert declared is None or declared * steps == pytest.approx(oracles.made[name]), name


@pytest.mark.long
def test_stepping_by_hand_is_what_minimize_does(solver, library):
    task = given(quadratic(0, 3, 4, 5.0), library, np.float32)
    oracles = untuned.oracles(task.outer, task.inner, like=(task.x0, task.y0))
    # horizon: the T of D-TFBO, which a run takes from max_steps
    known = [field.name for field in dataclasses.fields(solver)]
    same = dataclasses.replace(solver, horizon=6) if "horizon" in known else solver
    convert_x0 = jax.numpy.asarray if library == "jax" else torch.clone
    state = same.init(oracles, convert_x0(task.x0), convert_x0(task.y0))
    for _ in range(6):
        state, info = same.step(oracles, state, untuned.Batch())
    result = untuned.minimize(*task.positional, method=solver, max_steps=6)
    np.testing.assert_allclose(as_numpy(state.x), as_numpy(result.state.x), rtol=1e-5)
    np.testing.assert_allclose(float(info.outer), result.history["outer"][-1], rtol=1e-5)


@pytest.mark.long
def test_no_second_compilation_in_a_run(solver):
    """However many chunks a run is cut into, and whatever their lengths, JAX compiles alike."""
    task = given(regularization(1, 40, 30, 6), "jax")
    # Functions that made no promise, so that nothing is kept from run to run.
    outer, inner = (lambda *args: task.outer(*args)), (lambda *args: task.inner(*args))

    def compilations(max_steps):
        seen = []

        def listen(event, seconds, **_):
            if event.endswith("backend_compile_duration"):
                seen.append(event)

        jax.monitoring.register_event_duration_secs_listener(listen)
        try:
            untuned.minimize(
                outer,
                inner,
                task.x0,
                task.y0,
                **task.data,
                method=solver,
                max_steps=max_steps,
                eval_every=7,
                batch_size=8,
            )
        finally:
            jax.monitoring.clear_event_listeners()
        return len(seen)

    compilations(3)  # fills JAX's cache of the small operations around a run
    few, many = compilations(4), compilations(100)
    assert 0 < few == many


@pytest.mark.long
def test_a_network_can_be_the_inner_variable(solver):
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    ).double()
    weights, apply = untuned.from_module(network)
    D, t = torch.randn(30, 4).double(), torch.randint(0, 3, (30,))
    before = {name: part.clone() for name, part in network.named_parameters()}

    def outer(x, y, batch):
        return torch.nn.functional.cross_entropy(apply(y, batch[0]), batch[1])

    def inner(x, y, batch):
        return outer(x, y, batch) + sum(x.exp() * (part**2).sum() for part in y.values())

    result = untuned.minimize(
        outer,
        inner,
        torch.zeros((), dtype=torch.float64),
        weights,
        method=solver,
        outer_data=(D[:15], t[:15]),
        inner_data=(D[15:], t[15:]),
        max_steps=20,
    )
    assert set(result.y) == set(before)
    assert float(result.history["hypergrad_norm"][-1]) > 0
    assert not torch.equal(result.state.y["0.weight"], before["0.weight"])
    # The module itself is left as it was.
    assert all(torch.equal(part, before[name]) for name, part in network.named_parameters())
