#!/usr/bin/env bash
# Keeps SIZE standbys of an application ready in a region, and waits until they are:
#
#   ./warm_pool.sh APPLICATION REGION SIZE
#
# SIZE 0 removes the pool. Sessions that were claimed from it keep running.
set -euo pipefail
source "$(dirname "$0")/api.sh"

[ $# = 3 ] || { echo "usage: $0 APPLICATION REGION SIZE" >&2; exit 2; }
application=$1 region=$2 size=$3

if [ "$size" = 0 ]; then
  api DELETE "/warm-pool/$application/$region"
  exit
fi
api PUT "/warm-pool/$application/$region" --data "{\"size\": $size}"
pool='.warmPools[] | select(.image == $image and .location == $location)'
until api GET /warm-pool | jq --exit-status --arg image "$application" --arg location "$region" \
  "$pool | .ready >= .size" >/dev/null; do
  sleep 0.5
done
echo "$size standbys of $application are ready in $region"
