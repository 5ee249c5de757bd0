"""y*(x) on JAX against closed forms: both modes, twice, in jit and vmap, in any tree and dtype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import untuned

rng = np.random.default_rng(0)
FEATURES, TARGETS = rng.standard_normal((12, 3)), rng.standard_normal(12)
X = np.array([0.1, 0.5, -0.3])


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def ridge(x, y, data):
    features, targets = data
    return ((features @ y - targets) ** 2).sum() + (jnp.exp(x) * y**2).sum()


def solution(x, features=FEATURES):
    return untuned.argmin(ridge, x, jnp.zeros(3), data=(features, TARGETS))


def closed(x, features=FEATURES):
    return jnp.linalg.solve(features.T @ features + jnp.diag(jnp.exp(x)), features.T @ TARGETS)


@pytest.mark.long
def test_solution_and_both_modes():
    np.testing.assert_allclose(solution(X), closed(X), rtol=1e-12)
    expected = jax.jacfwd(closed)(jnp.asarray(X))
    np.testing.assert_allclose(jax.jacrev(solution)(jnp.asarray(X)), expected, rtol=1e-10)
    np.testing.assert_allclose(jax.jacfwd(solution)(jnp.asarray(X)), expected, rtol=1e-10)


@pytest.mark.long
def test_second_derivatives():
    expected = jax.hessian(lambda x: (closed(x) ** 2).sum())(jnp.asarray(X))
    found = jax.hessian(lambda x: (solution(x) ** 2).sum())(jnp.asarray(X))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.long
def test_compiled_mapped_and_in_data():
    many = jnp.stack([X, 2 * X, -X])

    def loss(y):
        return lambda x, features: (y(x, features) ** 2).sum()

    both = lambda y: jax.jit(jax.vmap(jax.grad(loss(y), (0, 1)), (0, None)))(many, FEATURES)
    for found, expected in zip(both(solution), both(closed), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.long
def test_what_inner_closes_over_is_differentiated():
    def y(strength):
        g = lambda x, y: ((FEATURES @ y - TARGETS) ** 2).sum() + strength * (y**2).sum()
        return untuned.argmin(g, X, jnp.zeros(3)).sum()

    expected = jax.grad(lambda s: closed(jnp.log(s) * jnp.ones(3)).sum())(2.0)
    for grad in (jax.grad(y), jax.jit(jax.grad(y))):
        np.testing.assert_allclose(grad(2.0), expected, rtol=1e-10)


@pytest.mark.long
def test_trees_and_integer_data():
    """Three variables as in the tests above, whose operations JAX then knows already."""
    labels = np.array([0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0])

    def g(x, y, data):
        scores = FEATURES[:, :2] @ y["w"] + y["b"]
        loss = jnp.logaddexp(0, scores) - data["labels"] * scores
        return loss.mean() + x["l2"] * (y["w"] ** 2).sum() + x["b"][0] * y["b"] ** 2

    def loss(x):
        start = {"w": jnp.zeros(2), "b": jnp.zeros(())}
        y = untuned.argmin(g, x, start, data={"labels": labels})
        return (y["w"] ** 2).sum() + y["b"]

    x = {"l2": jnp.asarray(0.1), "b": (jnp.asarray(0.2),)}
    both = jax.jit(jax.value_and_grad(loss))
    found, step = both(x)[1], 1e-5
    for change, slope in (
        ({"l2": 1.0, "b": (0.0,)}, found["l2"]),
        ({"l2": 0.0, "b": (1.0,)}, found["b"][0]),
    ):
        ahead, back = (jax.tree.map(lambda a, d, t=t: a + t * d, x, change) for t in (step, -step))
        finite = (both(ahead)[0] - both(back)[0]) / (2 * step)
        np.testing.assert_allclose(slope, finite, rtol=1e-6)


@pytest.mark.long
def test_float32_to_its_own_accuracy():
    x, features = jnp.asarray(X, jnp.float32), jnp.asarray(FEATURES, jnp.float32)
    y = lambda x: untuned.argmin(ridge, x, jnp.zeros(3, jnp.float32), data=(features, TARGETS))
    found = jax.jit(jax.grad(lambda x: (y(x) ** 2).sum()))(x)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, jax.grad(lambda x: (closed(x) ** 2).sum())(X), rtol=1e-3)


@pytest.mark.long
def test_numpy_in_numpy_out_without_x64():
    with jax.enable_x64(False):
        y = untuned.argmin(ridge, X, np.zeros(3), data=(FEATURES, TARGETS))
    assert isinstance(y, np.ndarray)
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, closed(X), rtol=1e-12)


def test_start_has_no_derivative_and_no_influence():
    y = lambda y0: untuned.argmin(ridge, X, y0, data=(FEATURES, TARGETS))
    np.testing.assert_allclose(y(jnp.array([9.0, -5.0, 3.0])), closed(X), rtol=1e-10)
    assert not jax.grad(lambda y0: y(y0).sum())(jnp.ones(3)).any()


@pytest.mark.long
def test_many_variables_without_a_matrix():
    """Above 256 variables conjugate gradients do it all; forward, reverse and twice."""
    scale = jnp.asarray(np.linspace(1.0, 50.0, 300))
    target = jnp.asarray(np.random.default_rng(1).standard_normal(300))

    def g(x, y):
        return (scale * (y - target) ** 2).sum() + jnp.exp(x) * (y**2).sum() + jnp.cos(y[0]) / 10

    def by_hand(x):  # without the cosine, which the first entry alone knows
        return (scale * target / (scale + jnp.exp(x)))[1:].sum()

    def found(x):
        return untuned.argmin(g, x, jnp.zeros(300))[1:].sum()

    twice = lambda x: jax.jvp(jax.value_and_grad(found), (x,), (1.0,))
    (value, slope), (slope_forward, bend) = jax.jit(twice)(0.5)
    np.testing.assert_allclose(slope_forward, slope, rtol=1e-9)
    np.testing.assert_allclose(value, by_hand(0.5), rtol=1e-9)
    np.testing.assert_allclose(slope, jax.grad(by_hand)(0.5), rtol=1e-7)
    np.testing.assert_allclose(bend, jax.grad(jax.grad(by_hand))(0.5), rtol=1e-6)


@pytest.mark.long
def test_a_second_call_compiles_nothing_and_sees_what_has_changed(monkeypatch):
    """A user's function may read anything, so what is kept is known by what tracing it gives."""
    compiled = []
    compile_it = jax.stages.Lowered.compile
    monkeypatch.setattr(
        jax.stages.Lowered, "compile", lambda *given: compiled.append(1) or compile_it(*given)
    )

    def solution(factor, target):
        target = jnp.asarray(target)
        g = lambda x, y: factor * ((y - target) ** 2).sum() + x * (y**2).sum()
        return untuned.argmin(g, 1.0, np.zeros(2))

    np.testing.assert_allclose(solution(1.0, np.ones(2)), 0.5)
    assert len(compiled) == 2
    np.testing.assert_allclose(solution(1.0, np.full(2, 3.0)), 1.5)  # an array it closes over
    assert len(compiled) == 2
    np.testing.assert_allclose(solution(3.0, np.ones(2)), 0.75)  # a number it closes over
    near = 1 + 2**-50  # of which no digit is lost
    assert 1 - 2 * solution(near, np.ones(2))[0] == pytest.approx(-(2**-51), rel=0.3)
    assert len(compiled) == 6
