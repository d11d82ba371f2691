# For the other scripts, by `source`: `api METHOD PATH [CURL OPTIONS]` makes a call.
# TILTYARD_URL is the base address, TILTYARD_TOKEN a token of the account.
# Both reach curl by a file of this shell's, so the token is in no list of processes.

api() {
  curl --silent --show-error --fail-with-body --request "$1" "${@:3}" \
    --config <(printf 'url = "%s%s"\nheader = "Authorization: Bearer %s"\n' \
      "${TILTYARD_URL:?is to be set}" "$2" "${TILTYARD_TOKEN:?is to be set}")
}
