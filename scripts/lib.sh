# What scripts/test, scripts/demo and others share: steps with their times, the build, its tests. Sourced, not run.

steps_done=()

# Runs a command as a named step; where it fails, says which one and stops (tests: returns, so that they are counted).
step() { # name command...
  local name=$1 began=$SECONDS status=0
  shift
  printf '\n==== %s\n' "$name"
  "$@" || status=$?
  if ((status == 0)); then
    steps_done+=("$(printf '%-20s %4d s' "$name" $((SECONDS - began)))")
    return 0
  fi
  steps_done+=("$(printf '%-20s %4d s  FAILED' "$name" $((SECONDS - began)))")
  printf '\n==== stopped: "%s" failed (exit status %d)\n' "$name" "$status" >&2
  [[ $name == test\ * ]] && return "$status"
  exit "$status"
}

summarize_steps() {
  printf '\n==== summary\n'
  printf '%s\n' "${steps_done[@]}"
}

# One compiler per core, but no more than memory carries: a file that includes torch takes up to 1.5 GB.
compile_jobs() {
  local cores memory_mib by_memory
  cores=$(nproc)
  memory_mib=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  by_memory=$((memory_mib / 1536))
  ((by_memory < 1)) && by_memory=1
  echo "${LAYERCAST_JOBS:-$((cores < by_memory ? cores : by_memory))}"
}

configure() { # preset [option...]
  mkdir -p build
  cmake --preset "$@" > "build/.configure-$1.log" 2>&1 || { cat "build/.configure-$1.log"; return 1; }
  grep -E '^-- (CUDA|UCX|libtorch):' "build/.configure-$1.log" || true
}

build() { # preset [target...]
  local preset=$1
  shift
  # With ccache, precompiled headers hit only where it may look past their macros and times.
  CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros} \
    cmake --build --preset "$preset" -j "$(compile_jobs)" ${1:+--target "$@"}
}

test_preset() { # preset [test preset]
  local wrapper=() tests="build/$1/Testing"
  # ThreadSanitizer cannot map its shadow where the kernel randomizes addresses widely.
  if [[ $1 == tsan* ]] && setarch -R true 2>/dev/null; then wrapper=(setarch -R); fi
  rm -f "$tests"/Temporary/LastTest*.log*
  "${wrapper[@]}" ctest --preset "${2:-$1}"
}
