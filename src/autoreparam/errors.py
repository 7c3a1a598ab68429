"""The library's errors. A message says which site, what was expected and found, what to do."""


class AutoreparamError(ValueError):
    """The base of every error that the library raises on purpose."""


class KeywordError(AutoreparamError, TypeError):
    """A function was called with a keyword that it does not have."""


class ModelError(AutoreparamError):
    """The model, or the data it was given, cannot be sampled as it stands."""


class ParameterizationError(AutoreparamError):
    """A parameterization does not fit the model: unknown site, wrong shape, value out of range."""


class DataError(AutoreparamError):
    """A data set is missing, damaged or in the wrong format."""


class DiskError(AutoreparamError):
    """A file cannot be written: no such folder, no space, no permission."""


class CheckpointError(AutoreparamError):
    """A stored run cannot be continued: it is damaged, or belongs to a different model or data."""


class SamplingError(AutoreparamError):
    """No chain could be started or moved."""


class SamplingWarning(UserWarning):
    """A run finished, but its draws should not be trusted yet; the message says what to do."""


def known(names) -> str:
    """A readable list of names for the end of an error message."""
    names = [f"'{name}'" for name in names]
    return ", ".join(names) if names else "none"
