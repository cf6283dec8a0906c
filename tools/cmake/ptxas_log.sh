#!/bin/sh
# Compiler launcher of the CUDA module: runs the compile and keeps what the assembler says about each kernel (registers, shared memory, stack, spills)
# beside the object, for the register table's test; everything else it says is shown as always.
object=
previous=
for argument; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"
"$@" 2>"$object.log"
status=$?
grep -E "ptxas info|bytes stack frame" "$object.log" >"$object.ptxas"
grep -vE "ptxas info|bytes stack frame|^$" "$object.log" >&2
rm -f "$object.log"
exit $status
