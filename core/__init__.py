"""Everything that thinks: hardware, plan, files, launch, supervision. Draws nothing."""


def product_version() -> str:
    """The installed version of trainwiz, or `0+unknown` when it runs from a bare tree."""
    # 27 ms that the first frame does not need.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trainwiz")
    except PackageNotFoundError:
        return "0+unknown"
