#!/usr/bin/env bash
# Installs the labs into the container. TORCH_INDEX, set before it is made, is the index that
# PyTorch's install page names for its CPU build; without it pip fetches CUDA libraries as well.
set -euo pipefail
cd "$(dirname "$0")/.."
python -m venv "$HOME/.venv"
if [ -n "${TORCH_INDEX:-}" ]; then
    "$HOME/.venv/bin/pip" install --index-url "$TORCH_INDEX" "torch>=2.6,<2.14"
fi
"$HOME/.venv/bin/pip" install -e '.[triton]'
"$HOME/.venv/bin/infralens" next
