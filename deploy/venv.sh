# Sourced by deploy/demo and tests/run: finds Python, makes .venv, installs the project.
#
# The caller stands in the root of the checkout and calls `install_project EXTRAS`.

VENV=.venv
MINIMUM='3.11'

say() { printf '\n=== %s\n' "$*"; }
die() { printf '%s: %s\n' "$0" "$*" >&2; exit 1; }

is_new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < tuple(map(int, sys.argv[1].split("."))))' \
    "$MINIMUM" >/dev/null 2>&1
}

# Print the interpreter to use: $PYTHON, or the first of the usual names that is new enough.
find_python() {
  local name
  if [[ -n ${PYTHON:-} ]]; then
    "$PYTHON" -c '' >/dev/null 2>&1 || die "PYTHON=$PYTHON does not run."
    is_new_enough "$PYTHON" \
      || die "PYTHON=$PYTHON is too old: $("$PYTHON" -V 2>&1); $MINIMUM or newer is needed."
    echo "$PYTHON"
    return
  fi
  for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
    if command -v "$name" >/dev/null && is_new_enough "$name"; then
      echo "$name"
      return
    fi
  done
  if command -v python3 >/dev/null; then
    die "$(python3 -V 2>&1) is too old: Python $MINIMUM or newer is needed (or set PYTHON)."
  fi
  die "No Python found: Python $MINIMUM or newer is needed (or set PYTHON)."
}

make_venv() {
  local python=$1
  # Debian ships venv without ensurepip, which only the package python3-venv brings.
  "$python" -c 'import venv, ensurepip' 2>/dev/null \
    || die "$("$python" -V) has no venv module. On Debian: apt-get install python3-venv"
  rm -rf "$VENV"
  "$python" -m venv "$VENV" || die "could not make $VENV with $python"
}

# What the environment was made from: unchanged means that it can be used again.
fingerprint() {
  "$1" -c 'import hashlib, sys
print(sys.version.split()[0], sys.argv[2], hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' \
    pyproject.toml "$extras"
}

install_project() {
  local extras=$1 python wanted log="$VENV/install.log"
  local stamp="$VENV/stamp-${extras//,/-}"
  python=$(find_python) || exit 1
  wanted=$(fingerprint "$python")
  if [[ -x $VENV/bin/python && $(cat "$stamp" 2>/dev/null) == "$wanted" ]] \
    && "$VENV/bin/python" -c 'import coordinator' 2>/dev/null; then
    return
  fi
  # A changed pyproject.toml only needs another install; another Python needs another venv.
  if [[ $("$VENV/bin/python" -V 2>/dev/null) != "$("$python" -V)" ]]; then
    say "Making $VENV with $("$python" -V)"
    make_venv "$python"
  fi
  rm -f "$stamp"
  say "Installing .[$extras] into $VENV (some minutes the first time)"
  # Byte code is made of what is imported, not of all that is installed: a third of the time.
  if ! "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile \
    -e ".[$extras]" >"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    if grep -qiE 'NewConnectionError|name resolution|ConnectTimeout|ProxyError|Network is unreachable|Connection refused|from versions: none' "$log"; then
      die "could not install: the package index cannot be reached. Is there a network? (all of it: $log)"
    fi
    die "could not install (all of it: $log)"
  fi
  echo "$wanted" >"$stamp"
}
