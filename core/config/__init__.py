"""RunConfig and its sections. What is named here is loaded with its first use: pydantic takes a tenth of a second."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwiz.core.config.run import DataSource, Origin, OriginKind, RunConfig, set_path

__all__ = ["DataSource", "Origin", "OriginKind", "RunConfig", "set_path"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    from trainwiz.core.config import run

    return getattr(run, name)
