"""The promise a function makes so that its compiled steps are kept between runs (`reusable`)."""

from untuned.ops.cache import reusable

__all__ = ["reusable"]
