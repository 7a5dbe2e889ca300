"""Delivery to a gateway that responds, is away, or refuses lines.

Covers edits/report/send.py.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ostinato.edits.report.journal import EventJournal
from ostinato.edits.report.send import BATCH, GatewayAwayError, HttpEventSink, Sent, deliver
from ostinato.types import Signal, SignalKind, to_json
from ostinato.web.joined import Joined


def event(n):
    return {
        "id": f"e{n}",
        "name": "edit.survival",
        "time": 1.0,
        "session_id": "s1",
        "turn": 2,
        "attributes": {},
    }


def signal(n, turn=2):
    return to_json(
        Signal(
            id=f"s{n}",
            kind=SignalKind.EDIT_KEPT,
            value=1.0,
            observed_at=5.0,
            session_id="s1",
            turn=turn,
            edit="e9",
        )
    )


@pytest.fixture
def journal(tmp_path):
    journal = EventJournal(tmp_path)
    journal.append([event(1), event(2), signal(1), event(3), signal(2, None)])
    return journal


@pytest.fixture
def gateway(desk):
    return desk.gateway


def test_everything_goes_once_and_in_order(journal, gateway) -> None:
    assert deliver(journal, gateway) == Sent(taken=5, refused=0, waiting="")
    assert deliver(journal, gateway) == Sent(taken=0, refused=0, waiting="")
    assert [e["id"] for e in gateway.events] == ["e1", "e2", "e3"]
    assert gateway.feedback == [signal(1), signal(2, None)]
    assert [body.count(b"\n") for body in gateway.bodies] == [1, 0, 0, 0]


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_while_the_gateway_is_away_all_waits(journal, gateway, status) -> None:
    gateway.status = status
    assert str(status) in deliver(journal, gateway).waiting
    gateway.status = 200
    assert deliver(journal, gateway).taken == 5


@pytest.mark.parametrize(("code", "sent"), [("role_required", 0), ("not_your_session", 5)])
def test_a_key_that_lacks_a_role_waits_and_a_session_of_another_does_not(journal, code, sent) -> None:
    class Strict:
        def post(self, path, body, kind):
            return 403, json.dumps({"error": {"code": code}}).encode()

    found = deliver(journal, Strict())
    assert (found.taken, found.refused, bool(found.waiting)) == (0, sent, sent == 0)


def test_a_batch_that_is_too_large_goes_in_parts(journal) -> None:
    class Narrow:
        """A gateway that accepts one line at a time."""

        def post(self, path, body, kind):
            taken.extend(lines := body.splitlines())
            return (413 if len(lines) > 1 else 200), b"{}"

    taken = []
    assert deliver(journal, Narrow()) == Sent(taken=5, refused=0, waiting="")
    assert [json.loads(line)["id"] for line in taken] == ["e1", "e2", "e1", "e2", "s1", "e3", "s2"]


def test_a_gateway_without_the_endpoint_is_asked_again(journal, gateway) -> None:
    gateway.statuses["/v1/events"] = 404
    assert "404" in deliver(journal, gateway).waiting and journal.sent() == 0


def test_feedback_on_a_session_it_does_not_know_is_counted_and_passed_over(journal, gateway) -> None:
    gateway.statuses["/feedback"] = 404
    found = deliver(journal, gateway)
    assert (found.taken, found.refused, found.waiting) == (3, 2, "")
    assert found.reason == "/feedback answered 404: {}"


def test_lines_that_are_wrong_are_counted_and_do_not_hold_up_the_others(journal) -> None:
    class Picky:
        """A gateway that accepts one of two events and no feedback."""

        def post(self, path, body, kind):
            errors = [{"line": 2, "message": "odd"}] if b"e2" in body else []
            return (207 if errors else 200, json.dumps({"errors": errors}).encode())

    assert deliver(journal, Picky()) == Sent(taken=4, refused=1, waiting="", reason="odd")


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"errors": 3}', b"<html>"])
def test_an_answer_without_a_list_of_errors_is_a_yes(journal, answer) -> None:
    class Terse:
        def post(self, path, body, kind):
            return 200, answer

    assert deliver(journal, Terse()).taken == 5


def test_many_go_in_batches_and_torn_lines_not_at_all(tmp_path, gateway) -> None:
    journal = EventJournal(tmp_path)
    journal.append([event(n) for n in range(BATCH + 3)])
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"torn')
    journal.append([event("last")])
    assert deliver(journal, gateway) == Sent(taken=BATCH + 4, refused=0, waiting="")
    assert len(gateway.bodies) == 2


def test_the_reporter_tries_again_after_a_while(desk) -> None:
    desk.gateway.status = 503
    desk.agent("calc.py", desk.PROPOSED)
    assert not desk.gateway.events
    desk.gateway.status = 200
    desk.after(5)
    assert not desk.gateway.events
    desk.after(60)
    assert {e["name"] for e in desk.gateway.events} == {"edit.proposed", "edit.survival"}
    assert len({e["id"] for e in desk.gateway.events}) == len(desk.gateway.events)


def test_a_laptop_that_was_offline_for_a_week_sends_all_that_it_saw(desk) -> None:
    desk.gateway.status = 503
    desk.agent("calc.py", desk.PROPOSED)
    desk.after(7 * 86_400)
    assert not desk.gateway.events
    desk.gateway.status = 200
    desk.after(60)
    names = [e["name"] for e in desk.gateway.events]
    assert names.count("edit.proposed") == 1 and "edit.survival" in names
    assert len({e["id"] for e in desk.gateway.events}) == len(names)


def test_no_text_is_sent_unless_the_settings_allow_it(desk, repo) -> None:
    from ostinato.edits.report.reporter import EditReporter

    secret = desk.PROPOSED.replace("scale_of", "sk_live_1234567890")
    desk.agent("calc.py", secret)
    desk.commit("agent")
    desk.after(900)
    assert b"sk_live" not in b"".join(desk.gateway.bodies) and b"calc.py" not in b"".join(desk.gateway.bodies)
    open_desk = EditReporter(desk.repo, desk.clock, Joined(url="", key="", content=True), desk.gateway)
    desk.reporter = open_desk
    desk.agent("other.py", "def other():\n    return 77\n")
    told = next(e for e in desk.gateway.events if "hunks" in e["attributes"])["attributes"]
    assert told["path"] == "other.py" and told["hunks"][0]["after"] == "    return 77\n"


def test_the_real_one_speaks_http(journal) -> None:
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            seen.append((self.path, self.headers["authorization"], self.rfile.read(length)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    gateway = HttpEventSink(Joined(url=f"http://127.0.0.1:{server.server_port}/base/", key="k1"))
    assert deliver(journal, gateway).taken == 5
    server.shutdown()
    thread.join()
    server.server_close()
    assert {(path, key) for path, key, _ in seen} == {
        (f"/base{p}", "Bearer k1") for p in ("/v1/events", "/feedback")
    }
    assert json.loads(seen[0][2].splitlines()[0])["id"] == "e1"
    assert "refused" in deliver_again(journal, gateway).waiting.lower()


def deliver_again(journal, gateway):
    journal.append([event(9)])
    return deliver(journal, gateway)


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(GatewayAwayError, match="set OSTINATO_URL"):
        HttpEventSink(Joined(url="localhost:8080", key=""))
