"""Bugs in who is let in, and as whom."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import replace
from tests.mutants.planted import Planted

KIT: Final = "service"
LINKS: Final = "controller/transport"
KAFKA: Final = "service/kafka"
SASL: Final = "broker_agent/security"
_OVER_TLS: Final = "tests/unit/controller/transport/test_links_over_tls.py"
_LISTENING: Final = "tests/unit/service/test_listening.py"
_CERTIFIED: Final = "tests/unit/service/test_certified.py"
_SERVER: Final = "tests/unit/service/test_server.py"
_SHARED: Final = "tests/unit/service/test_shared_tokens.py"
_TOKENS: Final = "tests/unit/service/test_token_list.py"
_CLIENT: Final = "tests/unit/broker_agent/test_controller_client.py"
_SASL: Final = "tests/unit/broker_agent/security/test_sasl.py"
_ACLS: Final = "tests/unit/broker_agent/security/test_acls.py"
_NEGOTIATION: Final = "tests/unit/broker_agent/test_negotiation.py"
_USERS: Final = "tests/unit/broker_agent/test_kafka_users.py"
_TRANSACTIONS: Final = "tests/unit/broker_agent/test_transactions.py"
_NO_TLS: Final = "its members speak no TLS, and its callers are nobody"

SECURITY_BUGS: Final = (
    Planted(
        "any-certificate-of-the-ca-is-a-member",
        "nobody votes as another member",
        "mTLS that checks the chain alone, as etcd's peers did before --peer-cert-allowed-cn",
        (replace(LINKS, "PeerLinks.judge", "certified is not None and _", "False"),),
        (_OVER_TLS,),
        unseen=_NO_TLS,
    ),
    Planted(
        "plaintext-after-a-failed-handshake-where-tls-is-required",
        "nothing in plaintext",
        "a fallback that is for `optional` alone",
        (replace(LINKS, "OutboundLink._next_context", "self._plainly and not protection.required", "self._plainly"),),
        (_OVER_TLS,),
        unseen=_NO_TLS,
    ),
    Planted(
        "first-byte-not-asked-for",
        "nothing in plaintext",
        "a listener that takes whatever comes",
        (replace(KIT, "Listener._hand_over", "not self._plaintext or await _", "await _"),),
        (_SERVER, _LISTENING),
        unseen=_NO_TLS,
    ),
    Planted(
        "silent-callers-keep-their-places",
        "a crowd that says nothing keeps nobody out",
        "Slowloris before the handshake: asyncio's listeners have no bound there",
        (replace(KIT, "Listener._welcome", "len(self._strangers) >= self._most", "False"),),
        (_LISTENING,),
        unseen=_NO_TLS,
    ),
    Planted(
        "certificates-of-every-cluster",
        "one CA may sign for several clusters",
        "a name without the cluster that it is of",
        (replace(KIT, "controllers_in", "name.cluster_id == cluster_id", "True"),),
        (_CERTIFIED, _OVER_TLS),
        unseen=_NO_TLS,
    ),
    Planted(
        "a-broker-for-every-id",
        "a broker takes blocks as itself alone",
        "one token for all brokers",
        (replace(KIT, "Principal.may_act_for", "self.brokers is None or _", "True"),),
        (_CERTIFIED, _TOKENS),
        unseen=_NO_TLS,
    ),
    Planted(
        "an-unknown-token-is-the-last-word",
        "a token is changed without an outage",
        "the first version of the token list: an agent whose token was newer ended",
        (replace(KIT, "TokenList.find", "digest not in self._read.value", "False"),),
        (_TOKENS,),
        unseen=_NO_TLS,
    ),
    Planted(
        "an-older-token-is-the-last-word",
        "a token is changed without an outage",
        "an agent that ended in the second after its file had been replaced",
        (replace("broker_agent/controllers", "AiohttpTransport.exchange", "token.value != sent", "False"),),
        (_CLIENT,),
        unseen=_NO_TLS,
    ),
    Planted(
        "everybodys-token-makes-an-operator",
        "whoever has the common token changes nothing",
        "two files that an operator filled from one secret",
        (replace(KIT, "hashed", "found.common & found.operators", "False"),),
        (_SHARED,),
        unseen=_NO_TLS,
    ),
    Planted(
        "a-connection-outlives-its-certificate",
        "a certificate ends",
        "Kafka before KIP-368, where only the handshake looks",
        (replace(KIT, "BoundedServer._look_at_all", "connection.end <= wall and _", "False"),),
        (_SERVER,),
        unseen=_NO_TLS,
    ),
    Planted(
        "a-busy-connection-outlives-its-certificate",
        "a certificate ends",
        "a look at idle connections alone, which a caller that never rests evades",
        (replace(KIT, "BoundedServer.ends", "connection.end == math.inf or _", "True"),),
        (_SERVER,),
        unseen=_NO_TLS,
    ),
    Planted(
        "a-token-told-to-a-leader-without-tls",
        "nothing in plaintext",
        "redirects that drop TLS",
        (replace("broker_agent/controllers", "ControllerClient.__init__", "(encrypted,)", "(plain, encrypted)"),),
        (_CLIENT,),
        unseen=_NO_TLS,
    ),
    Planted(
        "known-users-are-asked-otherwise-than-unknown-ones",
        "nobody finds out who exists",
        "Kafka, whose SCRAM ends at the first message of an unknown user",
        (replace(SASL, "Sasl.verifier", "hmac.digest(_, _, _)", "secrets.token_bytes(32)"),),
        (_SASL,),
        unseen=_NO_TLS,
    ),
    Planted(
        "any-password-for-nobody",
        "nobody is let in who is not in the list",
        "a check that forgets whom it was about",
        (replace(SASL, "Plain.step.matches", "verifier.matches(password) and _", "True"),),
        (_SASL,),
        unseen=_NO_TLS,
    ),
    Planted(
        "a-password-without-tls",
        "no password in plaintext",
        "SASL_PLAINTEXT with PLAIN, which Kafka permits",
        (replace(SASL, "Sasl.offered", "(*reversed(MECHANISMS), PLAIN) if encrypted else _", "(*MECHANISMS, PLAIN)"),),
        (_SASL, _NEGOTIATION),
        unseen=_NO_TLS,
    ),
    Planted(
        "served-before-it-is-known-who-asks",
        "nobody unnamed where names are required",
        "a state machine that falls through",
        (replace(KAFKA, "Negotiation.respond", "self._certified is None or self._exchange is not None", "False"),),
        (_NEGOTIATION,),
        unseen=_NO_TLS,
    ),
    Planted(
        "whoever-is-gone-stays-connected",
        "a user who is deleted is served no more",
        "Kafka without connections.max.reauth.ms (KIP-368)",
        (replace(KAFKA, "KafkaListener._stands", "self._sasl is not None and _", "True"),),
        (_USERS,),
        unseen=_NO_TLS,
    ),
    Planted(
        "any-token-is-a-brokers",
        "who has not the role is not served",
        "a listener that asks who it is, and not what it may",
        (replace("controller/kafka", "TokenMechanism._broker", "Access.BROKER not in principal.roles", "False"),),
        ("tests/unit/controller/kafka/test_interface.py",),
        unseen=_NO_TLS,
    ),
    Planted(
        "an-answer-to-another-request-taken",
        "a block goes to whoever asked for it",
        "KAFKA-14694's class: answers that are mixed up",
        (
            replace(
                "service/kafka/wire",
                "read_response_header",
                "(correlation_id := reader.int32()) != header.correlation_id",
                "(correlation_id := reader.int32()) < 0",
            ),
        ),
        ("tests/unit/controller/kafka/test_transport.py",),
        unseen="its agents speak HTTP",
    ),
    Planted(
        "what-a-gone-broker-asked-is-done",
        "no request is submitted behind a later one of the same caller",
        "this project before decision 0036",
        (replace("controller/kafka", "_allocation", "caller.has_hung_up", "lambda: False"),),
        ("tests/unit/controller/kafka/test_interface.py",),
        unseen=_NO_TLS,
    ),
    Planted(
        "a-broker-of-another-system-coordinates",
        "transactional producers are sent to agents alone",
        "two systems that share a list of brokers",
        (
            replace(
                "controller/kafka",
                "_register",
                "RegisterBrokerRequest(_1, _2, _3, _4, _5)",
                'RegisterBrokerRequest(_1, _2, _3 or "broker.test:65535", _4, _5)',
            ),
        ),
        ("tests/unit/controller/kafka/test_interface.py",),
        unseen="its agents speak HTTP",
    ),
    Planted(
        "allowed-though-denied",
        "a rule that denies goes before all that allow",
        "the first rule that matches decides, as in firewalls",
        (replace(SASL, "decide", "all(_)", "about[0].effect == ALLOW"),),
        (_ACLS,),
        unseen=_NO_TLS,
    ),
    Planted(
        "an-answer-remembered-for-somebody-else",
        "nobody uses the transactional id of another",
        "frames are remembered by their bytes, and who sent them is not among these",
        (replace("broker_agent/coordinator", "Transactions._init_producer_id", "check_allowed(_, _)", "None"),),
        (_TRANSACTIONS,),
        unseen=_NO_TLS,
    ),
)
