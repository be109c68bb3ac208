"""Everything that thinks: hardware, plan, files, launch, supervision. Draws nothing."""

from importlib.metadata import PackageNotFoundError, version


def product_version() -> str:
    """The installed version of trainwiz, or `0+unknown` when it runs from a bare tree."""
    try:
        return version("trainwiz")
    except PackageNotFoundError:
        return "0+unknown"
