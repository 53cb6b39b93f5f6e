"""Takes Alertmanager's webhooks and writes down what came, a line for each alert."""
# ruff: noqa: INP001 - a program by itself

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS = ("127.0.0.1", 9094)
MOST_BYTES = 4 * 1024 * 1024


def lines(path: str, payload: dict) -> list[str]:
    """What a message says: by which way, firing or resolved, which alert and its summary."""
    told = []
    for alert in payload["alerts"]:
        labels, summary = alert["labels"], alert["annotations"].get("summary", "")
        told.append(f"{path} {alert['status']} {labels.get('alertname', '')}: {summary}")
    return told


class Receiver(BaseHTTPRequestHandler):
    """One call."""

    timeout = 10

    def do_POST(self) -> None:
        """Write down its alerts."""
        try:
            size = min(int(self.headers.get("Content-Length", "")), MOST_BYTES)
            told = lines(self.path, json.loads(self.rfile.read(size)))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.send_error(400, "no message of an Alertmanager")
            return
        for line in told:
            sys.stdout.write(f"{line!r}\n" if not line.isprintable() else f"{line}\n")
        sys.stdout.flush()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing of the call itself."""


def main() -> None:
    """Listen until stopped."""
    ThreadingHTTPServer(ADDRESS, Receiver).serve_forever()


if __name__ == "__main__":
    main()
