#!/usr/bin/env bash
# Builds the static site of the documentation into DIR, which opens from a file. A link or section that does not exist is an error.
#
#     packaging/site.sh [DIR]     DIR defaults to target/site
#
# Needs Python 3.9 or later and PyPI, from which the generator comes.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
MATERIAL=9.8.1

mkdir -p target "${1:-target/site}"
dir=$(cd "${1:-target/site}" && pwd)
tools=target/site-tools
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check "mkdocs-material==$MATERIAL"

# Every document at its place, and every file of the repository that one links to.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git ls-files -z '*.md' '*.png' '*.svg' '*.yaml' '*.json' '*.sh' '*.rs' LICENSE ':!tests/*' | xargs -0 -I{} cp --parents {} "$work" 2>/dev/null || true
mkdir "$work/stage"
find "$work" -mindepth 1 -maxdepth 1 ! -name stage -exec mv {} "$work/stage" \;
cp packaging/mkdocs.yml "$work"
# With `--quiet` it would not count warnings.
NO_MKDOCS_2_WARNING=1 "$tools/bin/mkdocs" build --strict --config-file "$work/mkdocs.yml" --site-dir "$dir" >"$work/log" 2>&1 || {
  grep -E 'WARNING|ERROR|Aborted' "$work/log" >&2
  exit 1
}
echo "site: $dir/index.html"
