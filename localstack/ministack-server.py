"""ministack on the loopback address: AWS for tests, with seven things mended.

  .venv/bin/python ministack-server.py [--port N] [--parent]

--port    where to listen; 0 (the default) takes a free port
--parent  end when standard input ends, that is, when the process that started this one is gone

The first line on standard output says where it listens: "ministack on http://127.0.0.1:PORT". The log goes to standard error.

Mended, for the pinned version:

- EventBridge Scheduler delivers what AWS delivers: <aws.scheduler.scheduled-time> and its like are filled in, an instant is
  delivered once per schedule within a second, in the schedule's time zone, and a missed one late.
- A Lambda target is invoked asynchronously: with the retries and the destination of the function's event invoke config.
- CloudFormation keeps a schedule's time zone, first and last date, and what follows its completion.
- Every invocation counts in the function's metrics, not only those that a caller waits for.
- Metric filters turn the functions' log lines into metrics, so that alarms see them. They may compare fields with strings, and
  combine comparisons by &&, || and parentheses; of any other an error is logged.
- What a function printed belongs to its invocation: ministack stops to listen 5 ms after a line, which on a busy machine is too soon.
- Functions die with this process, however it ends.
"""

import argparse
import asyncio
import concurrent.futures
import ctypes
import fnmatch
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import uuid
import zoneinfo
from datetime import datetime, timedelta, timezone

if sys.version_info < (3, 11):
    sys.exit("ministack-server: Python 3.11 or later is needed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--parent", action="store_true")
    options = parser.parse_args()
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", options.port))
        sock.listen(100)
    except OSError as err:
        sys.exit(f"ministack-server: listen on 127.0.0.1:{options.port}: {err.strerror}")
    port = sock.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    # The modules read these when they are imported.
    os.environ.update(GATEWAY_PORT=str(port), MINISTACK_HOST="127.0.0.1", AWS_ENDPOINT_URL=url, SFTP_ENABLED="0", IOT_MTLS_ENABLED="0")
    try:
        from hypercorn.asyncio import serve
        from hypercorn.config import Config
        from ministack.app import app
    except ImportError as err:
        sys.exit(f'ministack-server: cannot load {err.name}, run "make setup"')
    spawn = Spawner()
    mend(spawn)
    if options.parent:
        threading.Thread(target=end_with_parent, args=(spawn,), daemon=True).start()
    config = Config()
    config.bind = [f"fd://{sock.fileno()}"]
    config.keep_alive_timeout = 75
    config.loglevel = "WARNING"
    print(f"ministack on {url}", flush=True)
    asyncio.run(serve(app, config))
    spawn.end()


def mend(spawn):
    from ministack.core import lambda_runtime
    from ministack.services import lambda_svc, scheduler
    from ministack.services.cloudformation import provisioners

    schedules = Schedules()
    replace(scheduler, "_tick_schedules", schedules.tick)
    replace(scheduler, "_SCHEDULE_TICK_INTERVAL", 0.5)
    drain = lambda_runtime.Worker._drain_stderr_bounded
    replace(lambda_runtime.ProvidedWorker, "_drain_stderr_bounded", lambda worker, **_: drain(worker, 0.5, 0.5, 5.0))
    spawning = types.SimpleNamespace(**vars(subprocess))
    spawning.Popen = spawn
    replace(lambda_runtime, "subprocess", spawning)
    count = lambda_svc._emit_lambda_metrics
    replace(lambda_svc, "_emit_lambda_metrics", lambda *_, throttle, **__: count(_[0], 0.0, False, True) if throttle else None)
    replace(lambda_svc, "_execute_function_dispatch", counted(lambda_svc._execute_function_dispatch, count))
    handler = provisioners._RESOURCE_HANDLERS["AWS::Scheduler::Schedule"]
    for action in ("create", "update"):
        handler[action] = keep_all(handler[action])


def replace(module, name, value):
    getattr(module, name)  # of another version, it is an error and not a mend without effect
    setattr(module, name, value)


def end_with_parent(spawn):
    while os.read(0, 4096):
        pass
    spawn.end()
    os._exit(0)


class Spawner:
    """Starts functions from one thread that lives as long as this process: the kernel kills a child when the *thread* that
    started it ends, and ministack's threads end with every invocation."""

    def __init__(self):
        self.thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self.started = []
        self.libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def __call__(self, *args, **kwargs):
        return self.thread.submit(self.start, args, kwargs).result()

    def start(self, args, kwargs):
        process = subprocess.Popen(*args, preexec_fn=self.die_with_parent if self.libc else None, **kwargs)
        self.started = [p for p in self.started if p.poll() is None] + [process]
        return process

    def die_with_parent(self):
        PR_SET_PDEATHSIG = 1
        self.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def end(self):
        for process in self.started:
            process.kill()


def counted(execute, count):
    from ministack.services import cloudwatch

    def run(function, config, event, request_id, started):
        result = execute(function, config, event, request_id, started)
        count(config["FunctionName"], (time.time() - started) * 1000, bool(result.get("error")), False)
        group = (config.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{config['FunctionName']}"
        filter_metrics(group, result.get("log") or "")
        cloudwatch._evaluate_all_alarms()
        return result

    return run


def filter_metrics(group, log):
    from ministack.services import cloudwatch, cloudwatch_logs

    for each in [f for f in cloudwatch_logs._metric_filters.values() if f["logGroupName"] == group]:
        try:
            matches = compile_filter(each["filterPattern"])
        except ValueError as err:
            cloudwatch_logs.logger.error("metric filter %s: %s", each["filterName"], err)
            continue
        for line in log.splitlines():
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            if isinstance(fields, dict):
                hit = matches(fields)
                for metric in each["metricTransformations"]:
                    value = metric.get("metricValue") if hit else metric.get("defaultValue")
                    if value is not None:
                        cloudwatch.record_metric(metric["metricNamespace"], metric["metricName"], float(value), metric.get("unit", "None"), {})


FILTER = re.compile(r'\s*(?:(&&|\|\||[()])|\$\.(\w+)\s*(!?=)\s*"([^"]*)")\s*')


def compile_filter(pattern):
    """The condition { $.field = "text*" && (... || ...) } as a function of a line's fields. A missing field matches nothing."""
    text = pattern.strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(f"{pattern} is no condition on fields")
    text, at, words, tests = text[1:-1], 0, [], []
    while at < len(text):
        found = FILTER.match(text, at)
        if not found:
            raise ValueError(f"{pattern} cannot be read from {text[at:]!r} on")
        at = found.end()
        operator, field, comparison, wanted = found.groups()
        if operator:
            words.append({"&&": "and", "||": "or"}.get(operator, operator))
        else:
            words.append(f"holds(tests[{len(tests)}])")
            tests.append((field, comparison, wanted))
    code = compile(" ".join(words), pattern, "eval")

    def matches(fields):
        def holds(test):
            field, comparison, wanted = test
            return field in fields and fnmatch.fnmatchcase(str(fields[field]), wanted) == (comparison == "=")

        return eval(code, {"holds": holds, "tests": tests})

    return matches


def keep_all(provision):
    def keep(physical_id, *rest):
        from ministack.services import scheduler

        name, attributes = provision(physical_id, *rest)
        props = rest[0] if len(rest) == 2 else rest[1]  # create has one set of properties, update an old and a new one
        schedule = scheduler._schedules.get(f"{props.get('GroupName', 'default')}/{name}")
        for prop in ("ScheduleExpressionTimezone", "ActionAfterCompletion", "StartDate", "EndDate"):
            if prop in props:
                schedule[prop] = props[prop]
        return name, attributes

    return keep


class Schedules:
    """Which instants of each schedule were delivered, and the delivery of the others."""

    def __init__(self):
        self.done = {}  # by schedule: its expression, and the newest instant that was delivered or lies before its time

    def tick(self):
        from ministack.core import responses
        from ministack.services import scheduler

        now = datetime.now(timezone.utc)
        before = responses.get_account_id(), responses.get_region()
        try:
            for key, schedule in list(scheduler._schedules._data.items()):
                responses.set_request_account_id(key[0])
                responses.set_request_region(key[1])
                try:
                    at = self.due(key, schedule, now)
                    if at is not None:
                        deliver(schedule, at)
                except Exception:
                    scheduler.logger.exception("schedule %s", key[2])
                    continue
                over = schedule.get("EndDate") and now.timestamp() > scheduler._to_epoch(schedule["EndDate"])
                if schedule.get("ActionAfterCompletion") == "DELETE" and (over or at is not None and is_once(schedule)):
                    scheduler._schedules._data.pop(key, None)
        finally:
            responses.set_request_account_id(before[0])
            responses.set_request_region(before[1])

    def due(self, key, schedule, now):
        """The oldest instant that is due and was not delivered, or None. It counts as delivered then."""
        from ministack.services import scheduler

        what = schedule["ScheduleExpression"], schedule.get("ScheduleExpressionTimezone"), schedule["CreationDate"]
        known, after = self.done.get(key, (None, None))
        if known != what:
            # An instant from before the schedule was made or changed is not its own, but for the only one of at().
            after = datetime.min.replace(tzinfo=timezone.utc) if is_once(schedule) else now
            if known is None and not is_once(schedule):
                after = datetime.fromtimestamp(schedule["CreationDate"], timezone.utc)
            self.done[key] = what, after
        if schedule.get("State") != "ENABLED":
            if not is_once(schedule):
                self.done[key] = what, now  # nothing is caught up on
            return None
        at = next_instant(schedule, after)
        start, end = scheduler._to_epoch(schedule.get("StartDate")), scheduler._to_epoch(schedule.get("EndDate"))
        if at is None or at > now or start is not None and now.timestamp() < start or end is not None and now.timestamp() > end:
            return None
        self.done[key] = what, at
        return at


def is_once(schedule):
    return schedule["ScheduleExpression"].startswith("at(")


def next_instant(schedule, after):
    """The first instant of a schedule after another, or None."""
    from ministack.services import eventbridge

    expression = schedule["ScheduleExpression"].strip()
    zone = zoneinfo.ZoneInfo(schedule.get("ScheduleExpressionTimezone") or "UTC")
    once = re.fullmatch(r"at\((.+)\)", expression)
    if once:
        at = datetime.fromisoformat(once[1]).replace(tzinfo=zone).astimezone(timezone.utc)
        return at if at > after else None
    seconds = eventbridge._parse_rate_seconds(expression)
    if seconds is not None:
        made = datetime.fromtimestamp(schedule["CreationDate"], timezone.utc)
        return made + timedelta(seconds=((after - made).total_seconds() // seconds + 1) * seconds)
    fields = eventbridge._parse_cron_fields(expression)
    if fields is None:
        raise ValueError(f"{expression} is no expression that this stand-in reads")
    local = after.astimezone(zone)
    while local is not None:
        local = eventbridge._cron_next_fire(fields, local)
        if local is None:
            return None
        at = local.astimezone(timezone.utc)
        if at > after and at.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):  # else the clock skips it
            return at
    return None


def deliver(schedule, at):
    from ministack.services import eventbridge, lambda_svc

    words = {
        "scheduled-time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "schedule-arn": schedule["Arn"],
        "execution-id": str(uuid.uuid4()),
        "attempt-number": "1",
    }
    target = dict(schedule["Target"])
    if target.get("Input"):
        target["Input"] = re.sub(r"<aws\.scheduler\.([a-z-]+)>", lambda m: words.get(m[1], m[0]), target["Input"])
    if ":lambda:" in target["Arn"] and target.get("Input"):
        function, config, name = lambda_svc._get_func_record_for_ref(target["Arn"])
        if function is None:
            raise LookupError(f"there is no function {name}")
        lambda_svc.invoke_async_with_retry(lambda_svc._execution_record_for_config(function, config), json.loads(target["Input"]))
        return
    event = {
        "EventId": words["execution-id"], "Source": "aws.scheduler", "DetailType": "Scheduled Event", "Detail": "{}",
        "Time": time.time(), "Resources": [schedule["Arn"]], "Account": eventbridge.get_account_id(), "Region": eventbridge.get_region(),
    }
    eventbridge._invoke_target(target, event, schedule)


if __name__ == "__main__":
    main()
