"""What this machine is. Never imports torch."""

from trainwiz.core.hardware.machine import Gpu, Libraries, Machine

__all__ = ["Gpu", "Libraries", "Machine"]
