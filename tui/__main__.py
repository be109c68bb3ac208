"""python -m trainwiz.tui: the `trainwiz` command where its script is not on PATH."""

from trainwiz.tui.cli import main

raise SystemExit(main())
