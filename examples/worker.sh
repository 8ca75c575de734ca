#!/usr/bin/env bash
# A filch worker over plain HTTP, with only bash, curl, sed and coreutils: worker.sh [URL]
#
# Runs commands one at a time; for jobs of other kinds it prints the arguments. While a job runs, it
# sends a heartbeat ten times per lease, and stops the job if the server cancels it. On SIGTERM it
# finishes its job and ends. If it cannot reach the server for 70 % of its lease, it stops its job,
# because the server is about to give the job to another worker, and continues under a new worker
# id.
set -um # Each job gets its own process group.
url=${1:-${FILCH_URL:-http://127.0.0.1:7420}} drain=''
answer=$(mktemp) log=$(mktemp)
instance=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ') # Names this process, whatever its worker id.
trap 'rm -f "$answer" "$log"' EXIT
trap drain=1 TERM

clock() { local up; read -r up _ </proc/uptime; now=$((10#${up/./} * 10)); } # In ms; keeps counting while the machine sleeps.

# ask VERB REST: sends a request with the rest of its body once; succeeds if it is answered.
ask() {
    local code sent most=2
    [ "$1" != claim ] || most=30
    clock; sent=$now
    code=$(curl -s -m $most -o "$answer" -w '%{http_code}' -H 'accept: text/plain' \
        -H 'content-type: application/json' -d "{\"instance\":\"$instance\"$2" "$url/v1/work/$id/$1")
    case $code in 200) renewed=$sent ;; 409 | 410) gone=1; false ;; *) false ;; esac
}

# insist VERB REST: repeats a request until it is answered or the lease is nearly over.
insist() {
    until ask "$@"; do
        clock
        [ "$now" -lt $((renewed + lease * 7 / 10)) ] || gone=1
        [ -z "$gone" ] || return 1
        sleep 0.1
    done
}

# Runs the claimed job, if there is one, and reports its end.
work() {
    local word value hold='' job='' kind='' timeout=0 args='' dir=. run=() env=() pid code ending text
    while IFS=$'\t' read -r word value; do
        printf -v value '%b' "$value"
        case $word in
            job) hold=${value/ /,} ;; id) job=$value ;; kind) kind=$value ;; args) args=$value ;; dir) dir=$value ;;
            run) run+=("$value") ;; env) env+=("$value") ;; lease_ms) lease=$value ;; drain) drain=1 ;;
            timeout_ms) printf -v timeout '%d.%03d' $((value / 1000)) $((value % 1000)) ;;
        esac
    done <"$answer"
    [ -n "$hold" ] || return 0
    [ "$kind" = command ] || run=(printf '%s\n' "$args")
    env+=("PATH=$PATH" "FILCH_JOB=$job" "FILCH_FENCE=${hold#*,}")
    (cd "$dir" && exec timeout "$timeout" env -i "${env[@]}" "${run[@]}") <<<"$args" >"$log" 2>&1 &
    pid=$! ending=''
    while kill -0 $pid 2>/dev/null; do
        sleep 0.05
        clock
        [ "$now" -ge $((renewed + lease / 10)) ] || continue
        if ! insist heartbeat ",\"holds\":[[$hold]]}" || grep -q '^cancel' "$answer"; then
            ending='"stopped"'
            kill -KILL -- -$pid 2>/dev/null
        fi
    done
    wait $pid; code=$?
    case $code in
        0) : "${ending:="\"finished\""}" ;;
        124) : "${ending:="\"failed\",\"error\":\"timed out after $timeout s\""}" ;;
        *) : "${ending:="\"failed\",\"error\":\"exit code $code\""}" ;;
    esac
    echo "$job $ending $(tail -n 1 "$log")"
    # JSON strings must not contain raw newlines or other control characters.
    text=$(tail -c 50000 "$log" | LC_ALL=C tr -cd '\11\12\40-\176' |
        sed -e 's/[\\"]/\\&/g' -e 's/\t/\\t/g' -e 's/$/\\n/' | tr -d '\n')
    [ -n "$gone" ] || insist report ",\"reports\":[{\"job\":[$hold],\"ending\":$ending,\"log\":\"$text\"}]}"
}

until [ -n "$drain" ]; do
    id=0$(od -An -N8 -tx8 /dev/urandom | tr -d ' ' | cut -c2-) number=1 lease=10000 gone=''
    until [ -n "$drain$gone" ]; do
        # Without a job there is no lease to lose, so it may retry for as long as it takes.
        if ask claim ",\"number\":$number,\"slots\":1,\"wait\":\"10s\"}"; then
            number=$((number + 1))
            work
        else
            sleep 0.2
        fi
    done
done
[ -n "$gone" ] || insist goodbye '}'
