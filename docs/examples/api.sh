# Sourced by the other scripts: `api METHOD PATH [CURL OPTIONS]` calls the API.
# TILTYARD_URL is the base address, TILTYARD_TOKEN a token of the account.
# curl reads both from a file descriptor, so that the token does not show in the process list.

api() {
  curl --silent --show-error --fail-with-body --request "$1" "${@:3}" \
    --config <(printf 'url = "%s%s"\nheader = "Authorization: Bearer %s"\n' \
      "${TILTYARD_URL:?is not set}" "$2" "${TILTYARD_TOKEN:?is not set}")
}
