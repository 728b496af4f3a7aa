#!/usr/bin/env bash
# Runs docs/tutorial.md: the blocks marked "sh run" one after the other in one shell, in which a block marked "file=NAME" writes that file.
#   tutorial.sh BUILD        BUILD stands for the folder "build"
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk -v build="$build" '
  /^```/ && inside { if (file) print "END_OF_FILE"; inside = file = run = 0; next }
  /^```/ {
    inside = 1
    if ($0 ~ /^```sh run$/) run = 1
    else if (match($0, /file=[^ ]+/)) { file = 1; print "cat >" substr($0, RSTART + 5, RLENGTH - 5) " <<\"END_OF_FILE\"" }
    next
  }
  run { gsub(/-B build$|--build build$|--install build /, "&@"); sub(/build@$/, build); sub(/build @/, build " "); print; next }
  file { print }
' docs/tutorial.md >"$work/tutorial.sh"
[ "$(grep -c END_OF_FILE "$work/tutorial.sh")" -ge 4 ] || { echo "FAIL  docs/tutorial.md has no blocks to run"; exit 1; }
mkdir "$work/home"
if ! HOME=$work/home XDG_CACHE_HOME= PKG_CONFIG_PATH= CMAKE_PREFIX_PATH= LD_LIBRARY_PATH= bash -eux -o pipefail "$work/tutorial.sh" >"$work/log" 2>&1; then
  tail -n 40 "$work/log"
  echo "FAIL  docs/tutorial.md"
  exit 1
fi
answers=$(grep -c '^class [0-9] (0\.[0-9]*)$' "$work/log")
[ "$answers" = 4 ] || { tail -n 60 "$work/log"; echo "FAIL  docs/tutorial.md: $answers answers of the program, 4 are expected"; exit 1; }
grep -q 'onnxfuse: "x" has size 15 in axis 1' "$work/log" || { echo "FAIL  docs/tutorial.md: no message about a wrong shape"; exit 1; }
echo "ok    docs/tutorial.md: $(grep -c '^```sh run' docs/tutorial.md) blocks of commands"
