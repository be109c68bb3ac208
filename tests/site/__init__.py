"""The folder from which Python takes its sitecustomize.py in every child of a test."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).resolve().parent
FAULTS_VARIABLE = "TRAINWIZ_FAULTS"
LOOK_VARIABLE = "TRAINWIZ_TEST_LOOK"


def with_site(environment: Mapping[str, str]) -> str:
    """PYTHONPATH with that folder first."""
    before = environment.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(SITE), *(place for place in before if place and place != str(SITE))])
