"""Receives webhooks: verifies each, and takes each event once however often it comes."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["WEBHOOK_SECRET"])
seen: set[str] = set()  # in earnest: a table, in the transaction of the effect


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            webhook.verify(body, {name.lower(): value for name, value in self.headers.items()})
        except WebhookVerificationError:
            self.send_response(403)
            self.end_headers()
            return
        event = json.loads(body)
        known = "again" if event["id"] in seen else "new"
        seen.add(event["id"])
        order = event["data"]
        print(known, order["order_id"], order["customer"], order["total"], flush=True)
        self.send_response(204)
        self.end_headers()

    def log_request(self, *_: object) -> None:
        """Keep quiet: what was received is printed above."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
