"""RunConfig and its sections."""

from trainwiz.core.config.run import Origin, OriginKind, RunConfig, set_path
from trainwiz.core.config.sections import DataSource

__all__ = ["DataSource", "Origin", "OriginKind", "RunConfig", "set_path"]
