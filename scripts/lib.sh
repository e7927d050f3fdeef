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

# The folder of the PyTorch wheel's libraries.
torch_library_dir() { echo "$KEVAL_VENV"/lib/python3*/site-packages/torch/lib; }

# collect_libraries DIR PROGRAM...: copies into DIR the shared libraries that PROGRAMs load (PyTorch's dependencies
# included), but neither PyTorch's own, nor CUDA's, nor the C and C++ runtime that every system has.
collect_libraries() {
  local dir=$1 library
  shift
  mkdir -p "$dir"
  LD_LIBRARY_PATH=$(torch_library_dir) ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    while read -r library; do
      case "$library" in
        "$KEVAL_VENV"/* | "$(realpath "$KEVAL_VENV")"/* | /usr/local/cuda*) continue ;;
      esac
      case "${library##*/}" in
        ld-linux* | libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | libresolv.so* | libutil.so* | \
          libanl.so* | libmvec.so* | libstdc++.so* | libgcc_s.so* | libgomp.so* | libtorch* | libc10* | \
          libcuda* | libcupti* | libcublas* | libcudnn* | libcufft* | libcurand* | libcusolver* | libcusparse* | \
          libcufile* | libnv* | libnccl*) continue ;;
      esac
      cp -L "$library" "$dir/"
    done
  strip --strip-unneeded "$dir"/*
}

# await_ready FILE PID LOG: until the kevald PID has written its ready file; shows LOG and fails where it ends before or
# takes longer than 60 s.
await_ready() {
  local file=$1 pid=$2 log=$3 i
  for ((i = 0; i < 600; ++i)); do
    [[ ! -f $file ]] || return 0
    if ! kill -0 "$pid" 2>/dev/null; then
      cat "$log" >&2
      echo 'kevald ended before it was ready; its log is above' >&2
      return 1
    fi
    sleep 0.1
  done
  cat "$log" >&2
  echo 'kevald was not ready within 60 s; its log is above' >&2
  return 1
}

# control_address FILE: where the kevald of that ready file listens.
control_address() { sed -n 's/.*"control": *"\([^"]*\)".*/\1/p' "$1"; }
