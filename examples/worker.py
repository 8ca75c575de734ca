#!/usr/bin/env python3
"""A filch worker over plain HTTP, with only the Python standard library: worker.py [URL]

Runs commands one at a time; for jobs of other kinds it prints the arguments. While a job runs, it
sends a heartbeat ten times per lease, and stops the job if the server cancels it. On SIGTERM it
finishes its job and ends. If it cannot reach the server for 70 % of its lease, it stops its job,
because the server is about to give the job to another worker, and continues under a new worker id.
"""
import json, os, secrets, signal, subprocess, sys, tempfile, time, urllib.error, urllib.request

URL = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FILCH_URL", "http://127.0.0.1:7420")
now = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)  # Keeps counting while the machine sleeps.
INSTANCE = secrets.token_hex(8)  # Tells this process from others that use the same worker id.
draining, claiming = False, False

class Gone(Exception): "The lease has expired or is about to: another worker gets our jobs."
class Drain(Exception): "We were asked to drain, and nothing runs."

class Worker:
    def __init__(self):
        self.id, self.lease, self.renewed = "0" + secrets.token_hex(8)[1:], 10, now()

    def ask(self, verb, body, holds_jobs=True):
        """Repeats a request until it is answered. Every request is safe to repeat."""
        while not holds_jobs or now() < self.renewed + 0.7 * self.lease:
            sent, headers = now(), {"content-type": "application/json"}
            data = json.dumps(body | {"instance": INSTANCE}).encode()
            request = urllib.request.Request(f"{URL}/v1/work/{self.id}/{verb}", data, headers)
            try:
                with urllib.request.urlopen(request, timeout=30 if verb == "claim" else 2) as response:
                    answer = json.load(response)
                self.lease = answer.get("lease_ms", self.lease * 1000) / 1000
                self.renewed = sent  # The lease starts when we send, not when the answer arrives.
                return answer
            except urllib.error.HTTPError as error:
                if error.code in (409, 410):  # Another process uses our id, or the lease has expired.
                    break
                if error.code < 500:
                    sys.exit(error.read().decode())
            except OSError:
                pass  # The server does not answer.
            time.sleep(0.1)
        raise Gone

    def run(self, job):
        hold, work, output = job["job"], job["work"], tempfile.TemporaryFile()
        report = {"job": hold, "ending": "finished"}
        if "run" not in work:
            return report | {"log": json.dumps(work.get("args")) + "\n"}
        env = {"PATH": os.environ["PATH"], **work.get("env", {}), "FILCH_JOB": job["id"], "FILCH_FENCE": str(hold[1])}
        stdin = tempfile.TemporaryFile()
        stdin.write(json.dumps(work["args"]).encode() if "args" in work else b"")
        stdin.seek(0)
        try:
            process = subprocess.Popen(work["run"], cwd=work.get("dir"), env=env, stdin=stdin, stdout=output,
                                       stderr=output, start_new_session=True)
        except OSError as error:
            return report | {"ending": "failed", "error": str(error), "forever": True}
        ends_at = now() + job.get("timeout_ms", 1e12) / 1000
        try:
            while process.poll() is None:
                try:
                    process.wait(max(0, min(self.lease / 10, ends_at - now())))
                except subprocess.TimeoutExpired:
                    if self.ask("heartbeat", {"holds": [hold]})["cancel"]:
                        report["ending"] = "stopped"
                        break
                    if now() > ends_at:
                        report |= {"ending": "failed", "error": f"timed out after {job['timeout_ms']} ms"}
                        break
        finally:  # Never leave processes of the job behind.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        if process.wait() and report["ending"] == "finished":
            report |= {"ending": "failed", "error": f"exit code {process.returncode}"}
        output.seek(0)
        return report | {"log": output.read()[-100_000:].decode(errors="replace")}

    def work(self):
        global claiming
        for number in range(1, sys.maxsize):
            claiming = True
            if draining:
                raise Drain
            answer = self.ask("claim", {"number": number, "slots": 1, "wait": "10s"}, holds_jobs=False)
            claiming = False
            for job in answer["jobs"]:
                report = self.run(job)
                print(job["id"], report["ending"], report.get("log", "").strip(), flush=True)
                self.ask("report", {"reports": [report]})
            if answer["drain"]:
                raise Drain

def drain(*_):
    global draining
    draining = True
    if claiming:
        raise Drain

signal.signal(signal.SIGTERM, drain)
while True:
    worker = Worker()
    try:
        worker.work()
    except Gone:
        continue
    except Drain:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            worker.ask("goodbye", {})  # Jobs of an answer that we did not read go back to the queue.
        except Gone:
            pass
        break
