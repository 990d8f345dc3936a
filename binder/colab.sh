#!/usr/bin/env bash
# For Google Colab, in a first cell, and then Runtime > Restart session:
#   !git clone --depth 1 https://github.com/OWNER/NAME lab && bash lab/binder/colab.sh
# Colab's own kernel stays as it is: changed below a running session, it would not come up again. Everything that
# computes, draws or loads models gets the lab's pins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kernel='ipykernel|ipython|ipywidgets|jupyter-client|jupyter-core|jupyterlab-widgets|pyzmq|tornado|traitlets'
kernel="$kernel|widgetsnbextension"
pins=$(mktemp)
grep -vE "^($kernel)==" constraints.txt > "$pins"
python3 -m pip install --disable-pip-version-check --quiet -c "$pins" -e ".[models]" \
  anywidget jinja2 latex2mathml matplotlib nbclient nbconvert nbformat seaborn
echo "Installed. Now restart the session (Runtime > Restart session), and run the notebook."
