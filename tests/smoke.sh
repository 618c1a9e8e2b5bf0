#!/bin/sh
# Smoke test of the installed commands: starts a temporary instance beside a sandbox and
# asserts status and body of each endpoint. Needs the commands on the PATH, curl and a
# POSIX shell. Prints no credential; anything unexpected ends it with status 1.
set -u
umask 077

work=$(mktemp -d)
pids=
trap 'end 130' INT TERM

end() {
    trap - INT TERM
    for pid in $pids; do kill "$pid" 2>/dev/null; done
    for pid in $pids; do wait "$pid"; done 2>/dev/null
    rm -rf "$work"
    exit "$1"
}

fail() {
    echo "FAILED: $1" >&2
    for log in "$work"/*.log; do
        echo "-- $(basename "$log")" >&2
        cat "$log" >&2
    done
    end 1
}

passed() {
    echo "ok  $1"
}

start() { # name, command ...
    name=$1
    shift
    "$@" >"$work/$name.log" 2>&1 &
    pids="$! $pids"
    eval "pid_$name=$!"
}

wait_until() { # what, command ...
    what=$1
    shift
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 150 ] || fail "$what: not within 15 s"
        sleep 0.1
    done
}

# expect NAME STATUS BODY METHOD PATH [JSON] [HEADER-FILE]: BODY is a shell pattern.
expect() {
    header=${7-$work/bearer}
    if [ -n "${6-}" ]; then
        set -- "$1" "$2" "$3" "$4" "$5" --data "$6"
    else
        set -- "$1" "$2" "$3" "$4" "$5"
    fi
    what=$1 status=$2 pattern=$3 method=$4 path=$5
    shift 5
    found=$(curl -sS -m 20 -o "$work/body" -w '%{http_code}' -X "$method" \
        -H @"$header" -H 'Content-Type: application/json' "$@" "$api$path") ||
        fail "$what: no answer"
    body=$(cat "$work/body")
    [ "$found" = "$status" ] || fail "$what: status $found, not $status: $body"
    # shellcheck disable=SC2254  # a pattern
    case $body in
    $pattern) passed "$what" ;;
    *) fail "$what: unexpected body: $body" ;;
    esac
}

cat >"$work/receiver.py" <<'PYTHON'
"""Keep what arrives, answer 200; the first line printed is the port."""
import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with open(sys.argv[1], "a") as file:
            file.write(f"{self.headers['X-Telegrammer-Delivery-Id']} {body}\n")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
PYTHON

here=$(python -c 'import telegrammer; print(telegrammer.__file__)') || fail "telegrammer is not installed"
echo "Trying $(telegrammer --version) in $(dirname "$(dirname "$here")")"

start sandbox telegrammer sandbox --port 0
wait_until "the sandbox's address" grep -q 'Bot API URL: http' "$work/sandbox.log"
bot_api=$(sed -n 's/.*(Bot API URL: \(.*\))/\1/p' "$work/sandbox.log")
start receiver python "$work/receiver.py" "$work/received"
wait_until "the receiver's port" test -s "$work/receiver.log"
callback="http://127.0.0.1:$(cat "$work/receiver.log")/arrived?a=%2f"

port=$(python -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
api="http://127.0.0.1:$port"
token='123456:sandbox-token-for-this-machine-only'
printf '%s\n' "$token" >"$work/token"
export TELEGRAMMER_DB="$work/state/telegrammer.db"
export TELEGRAMMER_BOT_API_URL="$bot_api" TELEGRAMMER_PORT="$port"

TELEGRAMMER_BOT_TOKEN_FILE="$work/token" telegrammer check >"$work/check.log" 2>&1 || fail "telegrammer check"
passed "telegrammer check"
{ printf 'Authorization: Bearer '; telegrammer add-key smoke; } >"$work/bearer" || fail "telegrammer add-key"
printf 'Authorization: Bearer %064d\n' 0 >"$work/stranger"

start api env TELEGRAMMER_BOT_TOKEN_FILE="$work/token" telegrammer-api
start poller env TELEGRAMMER_BOT_TOKEN_FILE="$work/token" telegrammer-poller
start dispatcher telegrammer-dispatcher
wait_until "a healthy gateway" telegrammer status
wait_until "an answer of the API" curl -sS -m 2 -o "$work/body" "$api/health"
wait_until "the first poll" grep -q '"event": *"bound"\|event=bound' "$work/poller.log"

chat=1001
expect 'GET /health' 200 '{"ok":true,"status":"*","components":{*},"queue":{*}}' GET /health
expect 'POST /subscribe' 200 '{"ok":true,"subscription_id":1}' \
    POST /subscribe "{\"chat_id\":$chat,\"callback_url\":\"$callback\"}"
expect 'POST /subscribe again' 200 '{"ok":true,"subscription_id":1}' \
    POST /subscribe "{\"chat_id\":$chat,\"callback_url\":\"$callback\"}"
expect 'GET /subscriptions' 200 "{\"ok\":true,\"subscriptions\":\[{\"id\":1,\"chat_id\":$chat,\"callback_url\":\"*/arrived?a=%2f\"}\]}" \
    GET /subscriptions

curl -sS -m 20 -o "$work/body" -H 'Content-Type: application/json' \
    --data "{\"chat_id\":$chat,\"text\":\"smoke in\",\"user\":{\"username\":\"Smoke_User\"}}" \
    "$bot_api/sandbox/messages" || fail "the sandbox takes no message"
wait_until "the message's arrival" grep -q '"text":"smoke in"' "$work/received"
passed "a message arrives at its subscriber"

expect 'POST /send by chat' 200 '{"ok":true,"result":{*"text":"smoke out"*}}' \
    POST /send "{\"chat_id\":$chat,\"text\":\"smoke out\"}"
expect 'POST /send by username' 200 '{"ok":true,"result":{*}}' \
    POST /send '{"username":"@smoke_user","text":"smoke out"}'
expect 'DELETE /subscriptions/1' 204 '' DELETE /subscriptions/1
expect 'DELETE /subscriptions/1 again' 404 '*"SUBSCRIPTION_NOT_FOUND"*' DELETE /subscriptions/1

expect 'no such user' 404 '*"USERNAME_NOT_FOUND"*' POST /send '{"username":"nobody_here","text":"x"}'
expect 'an unknown field' 400 '*"INVALID_REQUEST"*"field":"txt"*' POST /send '{"chat_id":1,"txt":"x"}'
expect 'no such path' 404 '*"NOT_FOUND"*' GET /nothing
expect 'no such method' 405 '*"METHOD_NOT_ALLOWED"*' PUT /send
expect 'an unknown key' 401 '*"UNAUTHORIZED"*' GET /health '' "$work/stranger"

telegrammer delete-key smoke || fail "telegrammer delete-key"
expect 'a deleted key' 401 '*"UNAUTHORIZED"*' GET /subscriptions

for name in dispatcher poller api sandbox; do
    eval "pid=\$pid_$name"
    kill "$pid"
    wait "$pid" || fail "$name: exit status $?"
done
passed "every process stops with status 0"

key=$(sed 's/.* //' "$work/bearer")
for secret in "$key" "${token#*:}" 'smoke in' 'smoke out' 'a=%2f'; do
    if grep -qF -e "$secret" "$work"/*.log; then fail "a secret stands in a log"; fi
done
passed "no secret in any log"
echo "Smoke test passed."
end 0
