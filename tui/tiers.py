"""Tiers: how exactly memory is estimated, as the user asks for it. Imports nothing heavy: the wizard's first frame waits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier

ENVIRONMENT = "TRAINWIZ_TIER"
TIERS = ("analytic", "layers", "full")


def wanted_tier(asked: str | None, otherwise: RefineTier) -> RefineTier:
    """The tier that was asked for by option, else by TRAINWIZ_TIER, else `otherwise`. UsageError for another word."""
    tier = asked or os.environ.get(ENVIRONMENT) or otherwise
    if tier not in TIERS:
        shown = plain_text(tier, 40)
        raise usage_error(
            "usage",
            ENVIRONMENT,
            tr(
                "{place}: there is no {text}, choose {values}.",
                place=ENVIRONMENT,
                text=repr(shown),
                values=tr(" or ").join(TIERS),
            ),
        )
    return cast("RefineTier", tier)
