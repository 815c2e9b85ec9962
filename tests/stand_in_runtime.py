#!/usr/bin/env python3
"""A container runtime for tests where there is none: docker's words, its daemon, its behaviour.

`install(folder)` puts a program into a folder that speaks for this one state of the world. What it
runs are processes of a daemon of its own, in sessions of their own, no children of whoever asked.
Its images are names in `images.json`; what is inside one is this machine.

It can misbehave, by files in its state: `hang` (words that never answer), `deaf` (stop, kill and
rm are answered and do nothing); `unmarked` takes the tuner's marks from what it starts, as if its
processes were another user's, who hides what is in them. `crash()` ends the daemon as docker's ends
with live-restore: its containers run on.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "STAND_IN_CONTAINER"
TICK_S = 0.02
SILENT = "Cannot connect to the Docker daemon at unix:///stand-in. Is the docker daemon running?"


# --- what a test does with it


class StandIn:
    """One runtime with its daemon, its images and its containers."""

    def __init__(self, folder, name="docker"):
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / "state"
        self.state.mkdir()
        self.program = folder / name
        python = f"{sys.executable} -I -S {Path(__file__).resolve()} {self.state}"
        self.program.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        self.program.chmod(0o755)
        self.image("engine:1")
        self.revive()

    def image(self, name, digest="sha256:" + "1" * 64):
        images = _read(self.state / "images.json") or {}
        (self.state / "images.json").write_text(json.dumps({**images, name: digest}))

    def revive(self):
        """Start the daemon, on what is there."""
        (self.state / "daemon.pid").unlink(missing_ok=True)
        subprocess.run([self.program, "daemon"], check=True, timeout=60)
        _until((self.state / "daemon.pid").exists)

    def crash(self):
        """End the daemon; the containers run on."""
        pid = int((self.state / "daemon.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        _until(lambda: not Path(f"/proc/{pid}").exists())

    def misbehave(self, **how):
        for name, value in how.items():
            (self.state / name).write_text(value)

    def behave(self):
        for name in ("hang", "deaf", "unmarked"):
            (self.state / name).unlink(missing_ok=True)

    def containers(self):
        """What the runtime lists, running or not."""
        return [path.parent.name for path in self.state.glob("*/config.json")]

    def config(self):
        """The configuration of its one container."""
        (path,) = self.state.glob("*/config.json")
        return _read(path)

    def running(self):
        """Processes of the host that run in its containers."""
        return [pid for path in self.state.glob("*/log") for pid in _inside(path.parent.name)]

    def close(self):
        """End all; nothing of it is left."""
        self.behave()
        with suppress(OSError, ValueError):
            os.kill(int((self.state / "daemon.pid").read_text()), signal.SIGKILL)
        for path in self.state.glob("*/log"):
            _kill_all(path.parent.name)


def _until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(TICK_S)


def _read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


# --- processes of a container, as the host sees them


def _marked(container):
    """Processes that carry the mark of a container."""
    wanted = f"{MARK}={container}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def _parents():
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    found[int(entry.name)] = int(fields[1])
    return found


def _inside(container):
    """The marked processes and all that descends from them, shed marks or not."""
    parents = _parents()
    found = {pid for pid in _marked(container) if pid in parents}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return sorted(found)


def _kill_all(container):
    """As the end of a process namespace does: nobody escapes, nobody is asked."""
    frozen: list[int] = []
    while (found := _inside(container)) != frozen:
        frozen = found
        for pid in frozen:
            with suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
    while left := [pid for pid in frozen if _alive(pid)]:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(TICK_S)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# --- the first process of a container


def init(state, container, words):
    """What `--init` puts first: it hands on signals, and ends with what it started."""
    folder = state / container
    with suppress(OSError):
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # whoever loses its parent becomes its child
    try:
        child = subprocess.Popen(words)
    except OSError as error:
        (folder / "refused").write_text(f"exec: {words[0]!r}: {error.strerror}")
        os._exit(127)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda number, _frame: child.send_signal(number))
    (folder / "started").write_text("yes")
    code = None
    while code is None:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
    (folder / "code").write_text(str(code if code >= 0 else 128 - code))
    os._exit(0)


# --- the daemon


class Daemon:
    """Keeps containers: each is a folder of the state, so that another daemon can go on."""

    def __init__(self, state):
        self.state = state
        self.lock = threading.Lock()
        for path in state.glob("*/config.json"):
            self._watch(path.parent.name)

    def serve(self, listener):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection, connection.makefile("r") as said:
            try:
                request = json.loads(said.readline())
                getattr(self, request.pop("verb"))(connection, **request)
            except (OSError, ValueError):
                return

    def run(self, connection, config):
        image = (_read(self.state / "images.json") or {}).get(config["image"])
        if image is None:
            _say(connection, error=f"No such image: {config['image']}", code=125)
            return
        if any(_config(self.state, other)["name"] == config["name"] for other in self._all()):
            _say(connection, error=f"the name {config['name']!r} is already in use", code=125)
            return
        for source, *_ in config["mounts"]:
            if not Path(source).exists():
                _say(connection, error=f"invalid mount: {source} does not exist", code=125)
                return
        container = secrets.token_hex(32)
        folder = self.state / container
        folder.mkdir()
        _say(connection, created=container)
        refused = self._start(container, folder, config)
        self._watch(container)
        if refused:
            _say(connection, error=refused, code=127 if "exec:" in refused else 125)
            return
        self._attach(connection, folder)

    def _start(self, container, folder, config):
        inner = [str(config["inner"].get(word, word)) for word in config["words"]]
        env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": "/root"}
        for variable in config["env"]:
            name, _, value = variable.partition("=")
            env[name] = value
        if (self.state / "unmarked").exists():
            env = {name: value for name, value in env.items() if not name.startswith("TUNER_")}
        for port, inside in config["published"]:
            try:
                Proxy(port, inside)
            except OSError:
                self._write(folder, {**config, "pid": 0})
                return f"Bind for 127.0.0.1:{port} failed: port is already allocated"
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, self.state, "init", container, *inner],
                env={**env, MARK: container},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, config["cores"]),
            )
        self._write(folder, {**config, "pid": process.pid})
        threading.Thread(target=process.wait, daemon=True).start()
        _until(lambda: (folder / "started").exists() or not _alive(process.pid))
        return (folder / "refused").read_text() if (folder / "refused").exists() else ""

    def _write(self, folder, config):
        (folder / "config.new").write_text(json.dumps(config))
        (folder / "config.new").replace(folder / "config.json")

    def _watch(self, container):
        threading.Thread(target=self._end, args=(container,), daemon=True).start()

    def _end(self, container):
        """Wait for its first process; then nothing of it lives, and `--rm` takes effect."""
        folder = self.state / container
        pid = _config(self.state, container)["pid"]
        while pid and _alive(pid):
            time.sleep(TICK_S)
        _kill_all(container)
        if not (folder / "code").exists():
            (folder / "code").write_text("137")
        time.sleep(2 * TICK_S)  # whoever is attached reads to the end
        with self.lock:
            (folder / "config.json").unlink(missing_ok=True)

    def _attach(self, connection, folder):
        with (folder / "log").open("rb") as log:
            while True:
                ended = (folder / "code").exists()
                if new := log.read():
                    _say(connection, out=new.decode(errors="replace"))
                elif ended:
                    break
                time.sleep(TICK_S)
        _until(lambda: not (folder / "config.json").exists())
        _say(connection, code=int((folder / "code").read_text()))

    def stop(self, connection, name, grace_s, number):
        container = self._found(connection, name)
        if container:
            if not (self.state / "deaf").exists():
                self._stop(container, grace_s, number)
            _say(connection, out=f"{name}\n", code=0)

    def _stop(self, container, grace_s, number):
        pid = _config(self.state, container)["pid"]
        if grace_s:
            with suppress(OSError):
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)
            end = time.monotonic() + grace_s
            while _alive(pid) and time.monotonic() < end:
                time.sleep(TICK_S)
        _kill_all(container)
        _until(lambda: not (self.state / container / "config.json").exists())

    def signal(self, connection, name, number):
        container = self._found(connection, name)
        if container:
            if number == signal.SIGKILL and not (self.state / "deaf").exists():
                self._stop(container, 0, number)
            elif number != signal.SIGKILL:
                with suppress(OSError):
                    os.kill(_config(self.state, container)["pid"], number)
            _say(connection, out=f"{name}\n", code=0)

    def inspect(self, connection, name):
        container = self._found(connection, name)
        if container:
            config = _config(self.state, container)
            ports = {f"{p}/tcp": [{"HostPort": str(p)}] for p, _ in config["published"]}
            running = not (self.state / container / "code").exists()
            state = {"Running": running, "Pid": config["pid"] if running else 0, "ExitCode": 0}
            oom = (self.state / "oom").exists()
            known = {
                "Id": container,
                "Name": f"/{config['name']}",
                "State": {**state, "OOMKilled": oom},
                "Config": {"Labels": dict(label.split("=", 1) for label in config["labels"])},
                "HostConfig": {"PortBindings": ports},
            }
            _say(connection, out=json.dumps([known]), code=0)

    def ps(self, connection, labels):
        found = [
            container
            for container in self._all()
            if all(label in _config(self.state, container)["labels"] for label in labels)
        ]
        _say(connection, out="".join(f"{container}\n" for container in found), code=0)

    def logs(self, connection, name):
        container = self._found(connection, name)
        if container:
            text = (self.state / container / "log").read_text(errors="replace")
            _say(connection, out=text, code=0)

    def exec(self, connection, name, words):
        """What is asked of /proc is answered as from inside: others' processes are not there."""
        container = self._found(connection, name)
        if container:
            seen = f"/proc/{{{','.join(map(str, [0, *_inside(container)]))}}}"
            inner = [word.replace("/proc/[0-9]*", seen) for word in words]
            inner = ["bash" if word == "sh" else word for word in inner]
            done = subprocess.run(inner, capture_output=True, text=True, check=False)
            _say(connection, out=done.stdout, code=done.returncode)

    def _found(self, connection, name):
        for container in self._all():
            if name in (container, _config(self.state, container)["name"]):
                return container
        _say(connection, error=f"No such container: {name}", code=1)
        return None

    def _all(self):
        with self.lock:
            return [path.parent.name for path in self.state.glob("*/config.json")]


class Proxy:
    """Listens outside and forwards inside, where the server must listen on every address."""

    def __init__(self, port, inside):
        self.inside = inside
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client, _ = self.listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self.inside))
            except OSError:
                client.close()
                continue
            if not _everywhere(self.inside):
                server.close()
                client.close()
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source, sink):
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)


def _everywhere(port):
    wanted = f"00000000:{port:04X}"
    return any(wanted == line.split()[1] for line in Path("/proc/net/tcp").open())


def _config(state, container):
    found = _read(state / container / "config.json")
    return found or {"name": "", "labels": [], "pid": 0, "published": []}


def _say(connection, **event):
    connection.sendall(json.dumps(event).encode() + b"\n")


def daemon(state):
    """Become nobody's child, and listen."""
    with suppress(FileNotFoundError):
        (state / "socket").unlink()
    os.chdir(state)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("socket")
    listener.listen(64)
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    (state / "daemon.new").write_text(str(os.getpid()))
    (state / "daemon.new").replace(state / "daemon.pid")
    Daemon(state).serve(listener)


# --- the client


def ask(state, **request):
    """Send one request and print what comes; returns the exit code, None without a daemon."""
    connection = socket.socket(socket.AF_UNIX)
    os.chdir(state)
    try:
        connection.connect("socket")
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("r") as said:
            for line in said:
                event = json.loads(line)
                if "created" in event and request["config"]["cidfile"]:
                    Path(request["config"]["cidfile"]).write_text(event["created"])
                sys.stdout.write(event.get("out", ""))
                sys.stdout.flush()
                if "error" in event:
                    print(f"docker: Error response from daemon: {event['error']}", file=sys.stderr)
                if "code" in event:
                    return event["code"]
    except OSError:
        pass
    print(SILENT, file=sys.stderr)
    return None


def parsed_run(words):
    parser = argparse.ArgumentParser(prog="docker run", allow_abbrev=False)
    for flag in ("--rm", "--init"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-i", "--interactive", action="store_true")
    for flag in ("--name", "--cidfile", "--network", "--entrypoint", "--gpus", "--pull"):
        parser.add_argument(flag)
    parser.add_argument("--cpuset-cpus", default="")
    for flags in (("-e", "--env"), ("-v", "--volume"), ("-p", "--publish"), ("--label",)):
        parser.add_argument(*flags, action="append", default=[])
    parser.add_argument("--shm-size")
    parser.add_argument("--ipc")
    parser.add_argument("image")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


def run(state, words):
    asked = parsed_run(words)
    published = [tuple(map(int, port.split(":")[1:])) for port in asked.publish]
    # Inside, a published port is the container's own: here another port stands for it.
    inner = {str(inside): _free_port() for _, inside in published}
    config = {
        "name": asked.name or secrets.token_hex(8),
        "cidfile": asked.cidfile,
        "image": asked.image,
        "labels": asked.label,
        "env": [
            variable if "=" in variable else f"{variable}={os.environ[variable]}"
            for variable in asked.env
            if "=" in variable or variable in os.environ
        ],
        "asked_env": asked.env,
        "mounts": [mount.split(":") for mount in asked.volume],
        "published": [(outside, inner[str(inside)]) for outside, inside in published],
        "inner": inner,
        "cores": [int(core) for core in asked.cpuset_cpus.split(",") if core]
        or sorted(os.sched_getaffinity(0)),
        "gpus": asked.gpus,
        "network": asked.network,
        "words": [asked.entrypoint, *asked.words] if asked.entrypoint else asked.words,
    }
    if asked.cidfile and Path(asked.cidfile).exists():
        print(f"docker: container ID file found: {asked.cidfile}", file=sys.stderr)
        return 125
    # As docker's client, which hands on what it is told to the container.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: _hand_on(state, asked.name, number))
    code = ask(state, verb="run", config=config)
    return 125 if code is None else code


def _hand_on(state, name, number):
    words = [sys.executable, "-I", "-S", __file__, str(state), "kill", "-s", str(number), name]
    subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main(state, verb, *words):
    hang = (state / "hang").read_text().split() if (state / "hang").exists() else []
    if verb in hang or "all" in hang:
        time.sleep(3600)
    if verb == "run":
        return run(state, list(words))
    if verb == "image":
        if ask(state, verb="ps", labels=["none"]) is None:
            return 1
        known = (_read(state / "images.json") or {}).get(words[-1])
        print(known or f"Error response from daemon: No such image: {words[-1]}")
        return 0 if known else 1
    return answer(state, verb, words)


def answer(state, verb, words):
    parser = argparse.ArgumentParser(prog=f"docker {verb}", allow_abbrev=False)
    parser.add_argument("-t", type=int, default=10)
    parser.add_argument("-s", type=int, default=signal.SIGKILL)
    for flag in ("-f", "-v", "-a", "-q", "--no-trunc"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--filter", action="append", default=[])
    parser.add_argument("--type")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    asked = parser.parse_args(words)
    name = asked.rest[0] if asked.rest else ""
    requests = {
        "stop": {"name": name, "grace_s": asked.t, "number": signal.SIGTERM},
        "kill": {"name": name, "number": asked.s},
        "rm": {"name": name, "grace_s": 0, "number": signal.SIGKILL},
        "inspect": {"name": name},
        "logs": {"name": name},
        "ps": {"labels": [label.removeprefix("label=") for label in asked.filter]},
        "exec": {"name": name, "words": asked.rest[1:]},
    }
    if verb not in requests:
        print(f"docker: unknown command: docker {verb}", file=sys.stderr)
        return 1
    known = {"kill": "signal", "rm": "stop"}
    code = ask(state, verb=known.get(verb, verb), **requests[verb])
    return 1 if code is None else code


if __name__ == "__main__":
    state = Path(sys.argv[1])
    if sys.argv[2] == "daemon":
        daemon(state)
    elif sys.argv[2] == "init":
        init(state, sys.argv[3], sys.argv[4:])
    else:
        sys.exit(main(state, *sys.argv[2:]))
