"""What schemathesis cannot know by itself: a token, lines of JSON, and the ids of jobs that are there."""

import json
import os
import urllib.request

import schemathesis

URL = os.environ["FILCH_URL"]
TOKEN = os.environ["FILCH_TOKEN"]


@schemathesis.auth()
class Bearer:
    """Everything is asked for as an admin; that nothing is answered without is tried as well."""

    def get(self, case, context):
        return TOKEN

    def set(self, case, data, context):
        case.headers = case.headers or {}
        case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.serializer("application/x-ndjson")
def write_lines(ctx, value):
    """One line, or one for each item; what is no text of JSON stays as it is."""
    if isinstance(value, bytes):
        return value
    lines = value if isinstance(value, list) else [value]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(URL + path, data, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def ended_jobs(count):
    """Jobs that nobody knows how to do: dead at once."""
    jobs = [{"kind": "nobody-knows", "retry": {"max": 1}}] * count
    ids = [job["id"] for job in ask("/v1/jobs", jobs)["jobs"]]
    for job in ids:
        ask(f"/v1/jobs/{job}?wait=30s")
    return ids


IDS = ended_jobs(8)


@schemathesis.hook
def map_path_parameters(ctx, path_parameters):
    """Half of the ids are those of jobs that are there; a made-up one alone never gets past `not-found`."""
    made_up = (path_parameters or {}).get("id")
    is_job = ctx.operation is not None and ctx.operation.path.startswith("/v1/jobs/")
    if is_job and isinstance(made_up, str) and len(made_up) % 2 == 0:
        choice = sum(made_up.encode(errors="replace")) % len(IDS)
        return {**path_parameters, "id": IDS[choice]}
    return path_parameters


@schemathesis.hook
def map_query(ctx, query):
    """Nobody follows the log of a job: one that was tried again may have no end before a lease has one."""
    return {**query, "follow": "false"} if query and "follow" in query else query


@schemathesis.hook
def filter_case(ctx, case):
    """A bad line is answered when 200 has been said already, so these are not judged by their status."""
    is_bad = case.meta is not None and case.meta.generation.mode.is_negative
    return not (is_bad and case.media_type == "application/x-ndjson")
