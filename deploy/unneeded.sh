#!/bin/sh
# Removes from the packages in a directory what nothing that runs needs: tests, sources, headers,
# debug symbols (uvloop ships them), and Arrow's RPC, which nothing here speaks.
set -eu
cd "$1"
rm -rf pyarrow/*flight* pyarrow/include pyarrow/includes pyarrow/src numpy/_core/include
find . -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
find . -type f \( -name '*.pyx' -o -name '*.pxi' -o -name '*.pxd' -o -name '*.pyi' \
  -o -name '*.c' -o -name '*.h' -o -name '*.a' \) -delete
strip --strip-unneeded uvloop/*.so
