#!/usr/bin/env bash
# Builds a game, pushes it, and waits until each region of its application can start it:
#
#   TILTYARD_REGISTRY=registry.example:5000 ./release.sh FOLDER APPLICATION TAG
#
# The application must exist (POST /application), with a repository of the same name. Running
# sessions keep the tag that they were started with; new ones get this tag as soon as a host has it.
set -euo pipefail
source "$(dirname "$0")/api.sh"

[ $# = 3 ] || { echo "usage: $0 FOLDER APPLICATION TAG" >&2; exit 2; }
folder=$1 application=$2 tag=$3
image=${TILTYARD_REGISTRY:?is not set}/$application:$tag

docker build --quiet --tag "$image" "$folder" >/dev/null
docker push --quiet "$image" >/dev/null
api POST "/application/$application/tags" --data "{\"tag\": \"$tag\"}"

regions=$(api GET /application |
  jq -r --arg name "$application" '.applications[] | select(.name == $name) | .regions[]')
for region in $regions; do
  until api GET "/tag/$region/$application/$tag" | jq --exit-status .exists >/dev/null; do
    sleep 0.5
  done
  echo "$application:$tag can be started in $region"
done
