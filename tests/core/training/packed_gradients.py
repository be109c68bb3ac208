"""Entry of a training process that computes one optimizer step padded as drawn and packed.

    torchrun ... -m tests.core.training.packed_gradients FOLDER

gradients.json in FOLDER then has, for each model, how far the two gradients are apart.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.core.training.window_gradients import config_of, gradients_of


def main() -> None:
    folder = Path(sys.argv[1])
    found: dict[str, Any] = {}
    for model in ("gpt2-tiny",):
        plain = config_of(model, 2, arranged=False)
        packing = plain.with_values({"data.arrange_by_length": True, "data.packing": True}, "you")
        (padded, all_of_it), (packed, less) = (
            gradients_of(config, folder / f"{model}-{name}")
            for name, config in (("padded", plain), ("packed", packing))
        )
        apart = float((padded - packed).norm() / padded.norm())
        found[model] = {"apart": apart, "norm": float(padded.norm()), "padded": all_of_it, "packed": less}
    if os.environ.get("RANK", "0") == "0":
        (folder / "gradients.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
