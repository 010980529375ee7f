# Functions for scripts that look at what was found of the measurements of a run. To be sourced.

# flags RUN: a line for each finding: cell, code, weight, what was measured and against which bound.
flags() {
  local summary
  for summary in "$1"/cells/*/summary.json; do
    awk -v cell="$(basename "$(dirname "$summary")")" '
      function text(line) { sub(/^ *"[a-z]+": "?/, "", line); sub(/"?,?$/, "", line); return line }
      /^    "reasons"/ { inside = 1 }
      inside && /^      "code":|^        "code":/ { code = text($0); bound = "none" }
      inside && /^ *"weight":/ { weight = text($0) }
      inside && /^ *"measured":/ { measured = text($0) }
      inside && /^ *"bound":/ { bound = text($0) }
      inside && /^ *"advice":/ { printf "%s\t%s\t%s\t%s (bound: %s)\n", cell, code, weight, measured, bound }
      inside && /^    \]/ { inside = 0 }
    ' "$summary"
  done
}

# judge ALLOWED RUN...: prints every finding whose code is not among ALLOWED with its evidence, then how often each code came; the number of
# cells and of such findings are left in `cells` and `others`.
judge() {
  local allowed=" $1 " run all cell code weight measured
  shift
  all=$(for run in "$@"; do flags "$run"; done)
  cells=$(for run in "$@"; do ls "$run"/cells/*/summary.json; done | wc -l)
  others=0
  while IFS=$'\t' read -r cell code weight measured; do
    [ -n "$code" ] || continue
    case $allowed in *" $code "*) continue ;; esac
    others=$((others + 1))
    echo "$cell: $code ($weight): $measured"
  done <<<"$all"
  echo "-- $cells cells; findings by code:"
  cut -f 2,3 <<<"$all" | sort | uniq -c | sort -rn
}
