#!/usr/bin/env bash
# Runs mypy over the packages and the tools: scripts/typecheck.sh [MYPY]
# The folders core/, tui/ and profiles/ are imported as trainwiz.core, ...; mypy finds them
# under that name through a folder of links.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
roots=.cache/mypy-roots/trainwiz
mkdir -p "$roots"
for part in core tui profiles; do ln -sfn "../../../$part" "$roots/$part"; done
for part in __init__.py py.typed; do ln -sfn "../../../api/$part" "$roots/$part"; done
exec "${1:-mypy}" -p trainwiz -p tools
