#!/bin/bash
# Install the browser that tests/browser looks at reports with: Debian's Chromium, headless, without what it only recommends.
#
#     tests/browser/chromium.sh
#
# Meant for Debian 12 as root. Where a Chromium is there already it returns at once; MATRIX_BROWSER names another one.
set -Eeuo pipefail

browser=${MATRIX_BROWSER:-chromium}
if ! command -v "$browser" >/dev/null; then
  begin=$SECONDS
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
  echo "chromium took $((SECONDS - begin)) s"
fi
"$browser" --version
