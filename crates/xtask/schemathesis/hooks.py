"""Details that the OpenAPI document lacks: a token, JSON lines, and ids of existing jobs."""

import json
import os
import urllib.request

import schemathesis

URL = os.environ["FILCH_URL"]
TOKEN = os.environ["FILCH_TOKEN"]


@schemathesis.auth()
class Bearer:
    """Sends requests as an admin. schemathesis also checks that requests without a token fail."""

    def get(self, case, context):
        return TOKEN

    def set(self, case, data, context):
        case.headers = case.headers or {}
        case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.serializer("application/x-ndjson")
def write_lines(ctx, value):
    """Writes one line, or one per item. Bytes are sent as they are."""
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
    """Submits jobs of an unknown kind, which are dead at once."""
    jobs = [{"kind": "unknown", "retry": {"max": 1}}] * count
    ids = [job["id"] for job in ask("/v1/jobs", jobs)["jobs"]]
    for job in ids:
        ask(f"/v1/jobs/{job}?wait=30s")
    return ids


IDS = ended_jobs(8)


@schemathesis.hook
def map_path_parameters(ctx, path_parameters):
    """Uses ids of existing jobs half of the time. Random ids alone never get past `not-found`."""
    made_up = (path_parameters or {}).get("id")
    is_job = ctx.operation is not None and ctx.operation.path.startswith("/v1/jobs/")
    if is_job and isinstance(made_up, str) and len(made_up) % 2 == 0:
        choice = sum(made_up.encode(errors="replace")) % len(IDS)
        return {**path_parameters, "id": IDS[choice]}
    return path_parameters


@schemathesis.hook
def map_query(ctx, query):
    """Does not follow logs: the log of a retried job may stay open until a lease ends."""
    return {**query, "follow": "false"} if query and "follow" in query else query


@schemathesis.hook
def filter_case(ctx, case):
    """Skips bad JSON lines: they are answered after the status 200 was sent."""
    is_bad = case.meta is not None and case.meta.generation.mode.is_negative
    return not (is_bad and case.media_type == "application/x-ndjson")
