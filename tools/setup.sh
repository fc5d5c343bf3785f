#!/bin/sh
# Install everything that make, CI and the tests use into the virtual environment BIN belongs to.
# Most of the time pip looks through lists of versions, on one core: so two of them take half of the
# exact versions each. What they could not get or what is missing, the last one gets or reports.
set -eu
BIN=${BIN:-.venv/bin}
PYTHON=${PYTHON:-python3}

install() {
    "$BIN/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}

pins() {
    awk -v part="$1" '/==/ && ++n % 2 == part {print $1}' constraints.txt
}

install --no-deps $(pins 0) &
first=$!
install --no-deps $(pins 1) || true
wait "$first" || true
install --constraint constraints.txt --editable '.[all]' $("$PYTHON" tools/dev_requirements.py)
packages=$("$BIN/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$BIN/python" -m compileall -qq -j 2 "$packages" || true # some hold templates of no whole program
