# Sourced by the other scripts, never run: where things are, and how to configure and build a preset.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export KEVAL_VENV=${KEVAL_VENV:-$root/.venv}
# Clones in different folders share compiled objects.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# configure PRESET [CMAKE-ARGUMENT...]: quick where nothing changed, since ninja re-runs CMake by itself.
configure() {
  local preset=$1
  shift
  local cache=build/$preset/CMakeCache.txt
  if [[ $# -eq 0 && -f build/$preset/build.ninja ]] && grep -qxF "KEVAL_VENV:PATH=$KEVAL_VENV" "$cache"; then
    return
  fi
  cmake --preset "$preset" -DKEVAL_VENV="$KEVAL_VENV" "$@"
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  cmake --build --preset "$preset" ${1:+--target "$@"}
}
