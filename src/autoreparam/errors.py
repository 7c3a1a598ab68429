"""Every refusal of the library: which site, what was expected, what was found, what to do."""


class AutoreparamError(ValueError):
    """A refusal in words; every error the library raises on purpose is one of these."""


class ModelError(AutoreparamError):
    """The model, or the data it was given, cannot be sampled as it stands."""


class ParameterizationError(AutoreparamError):
    """A parameterization does not fit: an unknown site, a wrong shape, a value out of range."""


class DataError(AutoreparamError):
    """A data set is missing, damaged or of the wrong form."""


class CheckpointError(AutoreparamError):
    """A stored run cannot be continued: it is damaged, or belongs to another model or data."""


class SamplingError(AutoreparamError):
    """No chain could be started or moved."""


class SamplingWarning(UserWarning):
    """A run ended, but its draws should not be trusted as they are; it says what to do."""


def known(names) -> str:
    """A readable list of names for the end of an error message."""
    names = [f"'{name}'" for name in names]
    return ", ".join(names) if names else "none"
